/* client-lib/encode.h - internal: public requests to messages. */
#pragma once

#include "client-lib/kvpool.h"
#include "proto/caps.h"
#include "proto/codec.h"

/* Where the message of one request is built; what is of any length lies in an arena. */
struct encode_scratch {
    union {
        Kvpool__Wire__Match match;
        Kvpool__Wire__Prefetch prefetch;
        Kvpool__Wire__Allocate allocate;
        Kvpool__Wire__Resume resume;
        Kvpool__Wire__Append append;
        Kvpool__Wire__SequenceRef sequence;
        Kvpool__Wire__Fork fork;
        Kvpool__Wire__Truncate truncate;
        Kvpool__Wire__Write write;
        Kvpool__Wire__Read read;
        Kvpool__Wire__Step step;
        Kvpool__Wire__Attend attend;
        Kvpool__Wire__EndStep end_step;
        Kvpool__Wire__Cancel cancel;
        Kvpool__Wire__StatsRequest stats;
        Kvpool__Wire__Drain drain;
        Kvpool__Wire__Clear clear;
        Kvpool__Wire__SetQuota set_quota;
        Kvpool__Wire__CreateDomain create_domain;
        Kvpool__Wire__List list;
        Kvpool__Wire__Kick kick;
        Kvpool__Wire__Shutdown shutdown;
    };
    Kvpool__Wire__Prompt prompt;
};

/*
 * Fills the verb of @wire. It points into @request, @scratch and @build until it is packed. Model
 * handles are still the caller's. 0, -EINVAL or -EMSGSIZE.
 */
int encode_request(struct wire_arena *build, const struct kvpool_request *request,
                   struct encode_scratch *scratch, Kvpool__Wire__Request *wire);

/* Verbs of operators: encode_operator.c. */
int encode_drain(struct wire_arena *build, const struct kvpool_request *request,
                 struct encode_scratch *scratch);
int encode_clear(struct wire_arena *build, const struct kvpool_request *request,
                 struct encode_scratch *scratch);
int encode_set_quota(struct wire_arena *build, const struct kvpool_request *request,
                     struct encode_scratch *scratch);
int encode_create_domain(struct wire_arena *build, const struct kvpool_request *request,
                         struct encode_scratch *scratch);
int encode_list(struct wire_arena *build, const struct kvpool_request *request,
                struct encode_scratch *scratch);
int encode_kick(struct wire_arena *build, const struct kvpool_request *request,
                struct encode_scratch *scratch);
int encode_shutdown(struct wire_arena *build, const struct kvpool_request *request,
                    struct encode_scratch *scratch);
