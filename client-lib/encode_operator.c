/* client-lib/encode_operator.c - the operators' verbs to messages. */
#include <errno.h>

#include "client-lib/encode.h"

static char *text(const char *string) /* protobuf-c has no const; it only reads */
{
    return (char *)(string ? string : "");
}

int encode_drain(struct wire_arena *build, const struct kvpool_request *request,
                 struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__drain__init(&scratch->drain);
    scratch->drain.undo = request->undo;
    return 0;
}

int encode_clear(struct wire_arena *build, const struct kvpool_request *request,
                 struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__clear__init(&scratch->clear);
    scratch->clear.domain = text(request->domain);
    scratch->clear.model = text(request->model_name);
    return 0;
}

int encode_set_quota(struct wire_arena *build, const struct kvpool_request *request,
                     struct encode_scratch *scratch)
{
    (void)build;
    if (!request->domain)
        return -EINVAL;
    kvpool__wire__set_quota__init(&scratch->set_quota);
    scratch->set_quota.payer = text(request->domain);
    scratch->set_quota.guarantee_bytes = request->quota.guarantee_bytes;
    scratch->set_quota.has_limit = request->quota.has_limit;
    scratch->set_quota.limit_bytes = request->quota.limit_bytes;
    scratch->set_quota.weight = request->quota.weight;
    scratch->set_quota.tier = text(request->what);
    return 0;
}

static int encode_names(struct wire_arena *build, const char *const *names, size_t *out_num,
                        char ***out_list)
{
    size_t num = 0;

    while (names && names[num])
        if (++num > WIRE_MAX_MEMBERS)
            return -EMSGSIZE;
    char **list = wire_arena_take(build, num * sizeof(*list));
    if (!list)
        return -EMSGSIZE;
    for (size_t i = 0; i < num; i++)
        list[i] = text(names[i]);
    *out_num = num;
    *out_list = list;
    return 0;
}

int encode_create_domain(struct wire_arena *build, const struct kvpool_request *request,
                         struct encode_scratch *scratch)
{
    Kvpool__Wire__CreateDomain *wire = &scratch->create_domain;

    if (!request->domain)
        return -EINVAL;
    kvpool__wire__create_domain__init(wire);
    wire->name = text(request->domain);
    wire->guarantee_bytes = request->quota.guarantee_bytes;
    wire->has_limit = request->quota.has_limit;
    wire->limit_bytes = request->quota.limit_bytes;
    wire->weight = request->quota.weight;
    int err = encode_names(build, request->readers, &wire->n_readers, &wire->readers);
    return err ? err : encode_names(build, request->fillers, &wire->n_fillers, &wire->fillers);
}

int encode_list(struct wire_arena *build, const struct kvpool_request *request,
                struct encode_scratch *scratch)
{
    (void)build;
    if (!request->what)
        return -EINVAL;
    kvpool__wire__list__init(&scratch->list);
    scratch->list.what = text(request->what);
    return 0;
}

int encode_kick(struct wire_arena *build, const struct kvpool_request *request,
                struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__kick__init(&scratch->kick);
    scratch->kick.session = request->session;
    return 0;
}

int encode_shutdown(struct wire_arena *build, const struct kvpool_request *request,
                    struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__shutdown__init(&scratch->shutdown);
    scratch->shutdown.forget = request->forget;
    return 0;
}
