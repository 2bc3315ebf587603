/* daemon/fsck.h - `kvpoold fsck`: what is in a disk tier's directory that no daemon has open. */
#pragma once

/* An exit status: 0 all is well, 1 problems were found (each a miss at worst), 2 it cannot be read.
 */
int fsck_command(int argc, char **argv);
