/*
 * tests/client-lib/fake_kvpoold.c - runs a command beside a fake daemon, in a new directory.
 * usage: fake_kvpoold COMMAND [ARGUMENT]...; KVPOOL_DIR is set for it
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client-lib/fake_daemon.h"

int main(int argc, char **argv)
{
    char dir[] = "/tmp/kvpool-fake-XXXXXX";
    int status = 0;
    if (argc < 2 || !mkdtemp(dir) || setenv("KVPOOL_DIR", dir, 1) < 0)
        return 2;

    struct fake_daemon *fake = fake_daemon_start(&(struct fake_options){.dir = dir});
    pid_t child = fork();
    if (child == 0) {
        execv(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        status = 0x100;
    fake_daemon_stop(fake);
    (void)rmdir(dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
