/* tests/bench/daemon_bed.c - starts a daemon, connects to it, removes what is left. */
#include "tests/bench/daemon_bed.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "bench_daemon: %s: %s\n", what, why);
    exit(1);
}

void daemon_bed_must(struct kvpool *kvpool, int answer, const char *what)
{
    if (answer)
        give_up(what, kvpool ? kvpool_message(kvpool) : kvpool_status_text(answer));
}

void daemon_bed_tokens(uint32_t *out, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        out[i] = seed * 2654435761u + (uint32_t)i * 7919u;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static void directory_remove(const struct daemon_bed *bed)
{
    (void)nftw(bed->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void daemon_bed_directory(struct daemon_bed *bed)
{
    (void)snprintf(bed->dir, sizeof(bed->dir), "/tmp/kvpool-bench-XXXXXX");
    if (!mkdtemp(bed->dir))
        give_up("mkdtemp", bed->dir);
    (void)snprintf(bed->run, sizeof(bed->run), "%s/run", bed->dir);
}

/* Its log goes nowhere: it would be in the table. */
static void daemon_run(const char *program, const char *config)
{
    int null = open("/dev/null", O_WRONLY);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null, 2);
    execl(program, program, "--config", config, (char *)NULL);
    _exit(127);
}

void daemon_bed_spawn(struct daemon_bed *bed, const char *program, const char *settings)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/kvpoold.yaml", bed->dir);
    FILE *out = fopen(path, "w");
    if (!out)
        give_up("cannot write", path);
    fprintf(out,
            "run-directory: %s\nstate-directory: %s/state\n%s%s"
            "tenants:\n  - {name: bench, uids: [%u]}\n",
            bed->run, bed->dir, settings, strstr(settings, "keep:") ? "" : "keep: none\n",
            getuid());
    fclose(out);
    bed->pid = fork();
    if (bed->pid < 0)
        give_up("fork", "no process");
    if (bed->pid == 0)
        daemon_run(program, path);
}

void daemon_bed_start(struct daemon_bed *bed, const char *program, const char *settings)
{
    daemon_bed_spawn(bed, program, settings);
    kvpool_disconnect(daemon_bed_connect(bed, 0)); /* it answers */
}

void daemon_bed_stop(struct daemon_bed *bed)
{
    if (bed->pid > 0) {
        (void)kill(bed->pid, SIGTERM);
        (void)waitpid(bed->pid, NULL, 0);
    }
    bed->pid = 0;
}

void daemon_bed_finish(struct daemon_bed *bed)
{
    daemon_bed_stop(bed);
    directory_remove(bed);
}

struct kvpool *daemon_bed_connect(const struct daemon_bed *bed, uint32_t flags)
{
    char why[KVPOOL_MAX_MESSAGE] = "";
    const struct kvpool_options options = {.struct_bytes = sizeof(options),
                                           .dir = bed->run,
                                           .flags = flags,
                                           .connect_ms = 10000,
                                           .out_message = why};
    struct kvpool *kvpool;

    if (kvpool_connect(&options, &kvpool))
        give_up("no daemon", why);
    return kvpool;
}

uint32_t daemon_bed_model(struct kvpool *kvpool, const struct kvpool_model *model)
{
    uint32_t handle;

    daemon_bed_must(kvpool, kvpool_register_model(kvpool, model, &handle, NULL), "register");
    return handle;
}
