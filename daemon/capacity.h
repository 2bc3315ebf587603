/* daemon/capacity.h - `kvpoold capacity`: what a model costs and how much of it fits. */
#pragma once

/* @argv[0] is "capacity". Prints to standard output; the process's exit status. */
int capacity_command(int argc, char **argv);
