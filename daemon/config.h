/*
 * daemon/config.h - every setting of kvpoold, its tenants and its shared domains.
 *
 * The file is YAML: the settings of the table in settings.c, and the sections `tenants` and
 * `domains`. Everything has a default. A file with mistakes is refused as a whole, and every
 * mistake is named with its line and what was expected. The records own their strings; none is ever
 * NULL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    CONFIG_MAX_NAME = 64, /* bytes of a tenant's or domain's name: [A-Za-z0-9._-]+ */
    CONFIG_MAX_TENANTS = 1024,
    CONFIG_MAX_DOMAINS = 1024,
    CONFIG_MAX_UIDS = 64,      /* of a tenant */
    CONFIG_MAX_MEMBERS = 1024, /* readers, or fillers, of a domain */
    CONFIG_MAX_FILE = 1 << 20, /* bytes */
    CONFIG_MAX_ERRORS = 32,    /* kept; more are counted */
    CONFIG_MAX_PATH = 80       /* of the run directory: socket names below it must fit sun_path */
};

#define CONFIG_UNLIMITED UINT64_MAX /* limit_bytes: none */

/* In bytes of one tier; the daemon rounds to pages: guarantees down, limits up. */
struct config_quota {
    uint64_t guarantee_bytes;
    uint64_t limit_bytes; /* or CONFIG_UNLIMITED */
    uint64_t weight;      /* 1 .. 2^20 */
};

struct config_tenant {
    char *name;
    uint32_t *uids; /* peer credentials that are this tenant; no uid is listed twice in a file */
    size_t num_uids;
    char *token_file; /* or "": only the uids. See daemon/token.h */
    struct config_quota quota, host_quota, disk_quota;
    uint32_t line; /* of the file */
};

/* A shared domain. Members are names of tenants in the same file; every filler may read. */
struct config_domain {
    char *name; /* no tenant's name */
    char **readers, **fillers;
    size_t num_readers, num_fillers;
    struct config_quota quota, host_quota, disk_quota;
    uint32_t line; /* of the file */
};

/* The table in settings.c says what each is. */
struct config {
    /* where things are; sockets lie below run_directory: config_socket_path() */
    char *run_directory, *state_directory;
    uint64_t session_mode, operator_mode; /* file modes of sockets */

    /* memory */
    uint64_t pool_bytes, page_bytes, populate_bytes;
    uint64_t watermark_pages;
    uint64_t keep;    /* enum keep_kind: who has the memory when the daemon ends */
    uint64_t keep_ms; /* a holder without a daemon gives it up after this; 0: never */

    /* tiers below the pool */
    uint64_t host_tier_bytes;
    char *disk_directory; /* "": no disk tier */
    uint64_t disk_max_bytes, disk_granule_bytes, disk_min_block_bytes, disk_max_block_bytes;
    uint64_t disk_queue_depth, disk_max_blocks, disk_deadline_ms;
    uint64_t store_default, store_when; /* enum pool_store, enum pool_store_when */
    uint64_t store_bytes, store_rate;
    uint64_t ahead_bytes, host_ahead_bytes; /* 0: a sixteenth of the tier */

    /* caps of the pool: struct pool_config */
    uint64_t max_blocks, max_block_tokens, max_sequences, max_sequence_blocks, max_tokens;
    uint64_t max_extra_bytes;
    uint64_t max_payers, max_models, max_arenas, max_transfers, max_waiters, max_steps;
    uint64_t max_step_rows;

    /* sessions and requests */
    uint64_t max_sessions, max_tenant_sessions, max_attached;
    uint64_t staging_bytes, staging_min_bytes; /* data region of a session: most, least */
    uint64_t worker_threads;                   /* 0: one less than there are CPUs */
    uint64_t spin_us;                          /* ring polling before sleep */
    uint64_t hello_ms, deadline_ms, max_deadline_ms, drain_ms;
    uint64_t credits;             /* outstanding requests of a session */
    uint64_t message_bytes;       /* of one frame */
    uint64_t session_queue_bytes; /* of one session's queued requests and replies */
    uint64_t queue_bytes;         /* of all together */

    /* watching */
    uint64_t http_port; /* loopback TCP too, if not 0; needs http_token_file */
    char *http_token_file;
    uint64_t http_connections;
    uint64_t stats_ms;       /* between snapshots */
    uint64_t event_queue;    /* messages kept for a slow subscriber */
    uint64_t metric_tenants; /* tenants with labels of their own; the rest is `other` */
    uint64_t log_rate;       /* lines a second of one kind of event */

    bool disk_direct, disk_io_uring, disk_optional;
    bool pool_pinned;
    bool private_mount; /* false: memfds even where the mount can be had */
    bool http;          /* on run_directory/http.sock */
    bool log_json;
    bool strict; /* refuse to start in a fallback */

    struct config_tenant *tenants;
    size_t num_tenants;
    struct config_domain *domains;
    size_t num_domains;
};

/* What is wrong with a file: one text a mistake, "file:line: key: what was expected". */
struct config_error {
    size_t count; /* the first CONFIG_MAX_ERRORS are in @texts */
    char texts[CONFIG_MAX_ERRORS][320];
};

enum config_answer {
    CONFIG_REFUSED = 1 /* @out_error says why: all of it */
};

/*
 * Reads @path; NULL: the defaults. 0, CONFIG_REFUSED, or a negative errno (also in @out_error) if
 * it cannot be read or there is no memory. @out_error is always written.
 */
/* Of a tenant or domain: 1 to CONFIG_MAX_NAME of A-Z a-z 0-9 . _ -, no dot first, and not `other`,
 * which metrics call the rest. */
bool config_name_is_good(const char *name);

int config_load(const char *path, struct config **out_config, struct config_error *out_error);
void config_destroy(struct config *config); /* takes NULL */

/*
 * Whether @next can be adopted by a daemon that runs with @current: 0, or CONFIG_REFUSED with one
 * text for each setting that differs and needs a restart. Tenants, domains and quotas never do.
 */
int config_diff_reloadable(const struct config *current, const struct config *next,
                           struct config_error *out_error);

/* Tenants, domains and reloadable settings change places; @next then holds those of before. */
void config_adopt_reloadable(struct config *current, struct config *next);

/* "session" -> "/run/kvpoold/session.sock". -ENAMETOOLONG: over @size or sun_path. */
enum config_socket {
    CONFIG_SESSION_SOCKET,  /* hello; session_mode */
    CONFIG_REQUEST_SOCKET,  /* ZeroMQ ROUTER; session_mode */
    CONFIG_OPERATOR_SOCKET, /* ZeroMQ ROUTER for operators; operator_mode */
    CONFIG_STATS_SOCKET,    /* ZeroMQ PUB; operator_mode */
    CONFIG_HTTP_SOCKET      /* operator_mode */
};
int config_socket_path(const struct config *config, enum config_socket socket, char *out,
                       size_t size);

/* As a file that config_load() reads back: --print-config. Negative errno if writing fails. */
int config_print(const struct config *config, FILE *out);

/* Every setting with default, bounds and help: --help, and the man page. */
void config_print_help(FILE *out);
