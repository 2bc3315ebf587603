/* daemon/main.c - kvpoold: arguments, configuration, the server. */
#include "daemon/capacity.h"
#include "daemon/config.h"
#include "daemon/descriptors.h"
#include "daemon/fsck.h"
#include "daemon/hold.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/server.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* What is wrong stands alone: the settings fill screens. */
static int usage_fail(const char *word)
{
    if (word)
        fprintf(stderr, "kvpoold: there is no command or option %s\n", word);
    fputs("Try: kvpoold --help\n", stderr);
    return 2;
}

static void usage(void)
{
    FILE *out = stdout;

    fputs("usage: kvpoold [--config FILE] [--check-config | --print-config]\n"
          "       kvpoold capacity ...\n"
          "       kvpoold fsck DIRECTORY ...\n"
          "Owns KV-cache memory for the inference engines of this machine.\n"
          "  --config FILE    settings, tenants and domains (YAML); without it: the defaults\n"
          "  --check-config   say what is wrong with the file, and exit\n"
          "  --print-config   print the settings as they are, and exit\n"
          "  --version        print the version, and exit\n"
          "SIGHUP: tenants, domains, quotas and the settings marked \"SIGHUP changes it\", below "
          "and in\n"
          "kvpoold.yaml(5), are read again. SIGTERM: drain, then exit.\n\n",
          out);
    config_print_help(out);
}

/* Signals come through a descriptor; a reader that went away is an error of the write. */
static void signals_block(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL); /* before any thread: all inherit it */
    (void)signal(SIGPIPE, SIG_IGN);
}

static int directories_make(const struct config *config)
{
    const struct {
        const char *path;
        mode_t mode;
    } rows[] = {{config->run_directory, 0755}, {config->state_directory, 0700}};

    for (size_t at = 0; at < sizeof(rows) / sizeof(rows[0]); at++) {
        if (mkdir(rows[at].path, rows[at].mode) == 0 || errno == EEXIST)
            continue;
        int err = -errno;
        log_event(LOG_ERROR, "directory_failed", log_text("directory", rows[at].path),
                  log_error("error", err));
        return err;
    }
    return 0;
}

/* Of a session: staging and two eventfds; of a connection: a socket and a pidfd; of an arena: its
 * file, the read-only one, their table and what is taken over after a restart. */
static void descriptors_take(const struct config *config)
{
    const struct descriptors_need need = {.own = 5 * config->max_sessions +
                                                 2 * config->max_attached + 4 * config->max_arenas +
                                                 2 * config->http_connections + 256,
                                          .peers = 2 * config->max_sessions + 256};
    uint64_t limit = descriptors_prepare(&need);

    if (limit < need.own + need.peers)
        log_event(LOG_WARN, "few_descriptors", log_number("limit", limit),
                  log_number("wanted", need.own + need.peers),
                  log_text("remedy", "raise LimitNOFILE, or lower max-sessions and max-arenas"));
}

static int run(struct config *config, const char *path)
{
    struct server *server;
    descriptors_take(config);
    int err = directories_make(config);

    if (!err)
        err = server_create(config, path, &server);
    if (err) {
        log_event(LOG_ERROR, "start_failed", log_error("error", err));
        return EXIT_FAILURE;
    }
    log_event(LOG_NOTICE, "ready", log_text("run_directory", config->run_directory),
              log_number("pool_bytes", config->pool_bytes));
    (void)notify_send("READY=1");
    err = server_run(server);
    log_event(LOG_NOTICE, "stopped", log_error("error", err));
    server_destroy(server);
    return err ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int load(const char *path, struct config **out_config)
{
    static struct config_error error;
    int answer = config_load(path, out_config, &error);

    for (size_t at = 0; at < error.count && at < CONFIG_MAX_ERRORS; at++)
        fprintf(stderr, "%s\n", error.texts[at]);
    return answer;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} subcommands[] = {{"capacity", capacity_command}, {"fsck", fsck_command}, {"hold", hold_command}};

int main(int argc, char **argv)
{
    enum { RUN, CHECK, PRINT } what = RUN;
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"check-config", no_argument, NULL, 'C'},
        {"print-config", no_argument, NULL, 'P'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},      {NULL, 0, NULL, 0}};
    const char *path = NULL;
    struct config *config;
    int option;

    for (size_t at = 0; argc > 1 && at < sizeof(subcommands) / sizeof(subcommands[0]); at++) {
        if (strcmp(argv[1], subcommands[at].name) == 0)
            return subcommands[at].run(argc - 1, argv + 1);
    }
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == 'c') {
            path = optarg;
        } else if (option == 'C') {
            what = CHECK;
        } else if (option == 'P') {
            what = PRINT;
        } else if (option == 'h') {
            usage();
            return EXIT_SUCCESS;
        } else if (option == 'v') {
            puts("kvpoold " KVPOOL_VERSION);
            return EXIT_SUCCESS;
        } else {
            return usage_fail(NULL); /* getopt_long() said what is wrong */
        }
    }
    if (optind < argc)
        return usage_fail(argv[optind]);
    if (load(path, &config))
        return EXIT_FAILURE;
    int status = EXIT_SUCCESS;
    if (what == PRINT)
        status = config_print(config, stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    signals_block();
    log_configure(&(struct log_options){
        .is_json = config->log_json, .lines_per_second = (uint32_t)config->log_rate, .fd = -1});
    if (what == RUN)
        status = run(config, path);
    config_destroy(config);
    return status;
}
