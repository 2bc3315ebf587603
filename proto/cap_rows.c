/* proto/cap_rows.c - the caps of every field of every message, in order of field numbers. */
#include "proto/caps.h"

#define CAPS_OF(snake, rows)                                                                       \
    const struct wire_cap_message wire_##rows = {&kvpool__wire__##snake##__descriptor, rows,       \
                                                 sizeof(rows) / sizeof((rows)[0])}

/* clang-format off */
#define NUMBER(name, maximum)      {.field = name, .max = maximum}
#define STRING(name, maximum)      {.field = name, .max = maximum}
#define STRINGS(name, count, each) {.field = name, .max_count = count, .max = each}
#define BYTES(name, count, size)   {.field = name, .max = (uint64_t)(count) * (size), .unit = size}
#define NUMBERS(name, count)       {.field = name, .max_count = count, .max = WIRE_ANY}
#define MESSAGE(name, caps)        {.field = name, .of = &wire_##caps}
#define MESSAGES(name, count, caps) {.field = name, .max_count = count, .of = &wire_##caps}

static const struct wire_cap layer_group_caps[] = {
    NUMBER("LayerGroup.window", WIRE_ANY),
    BYTES("LayerGroup.layers", WIRE_MAX_LAYERS, 2),
};
static CAPS_OF(layer_group, layer_group_caps);

static const struct wire_cap register_model_caps[] = {
    STRING("RegisterModel.name", WIRE_MAX_NAME_BYTES),
    STRING("RegisterModel.weights_revision", WIRE_MAX_NAME_BYTES),
    NUMBER("RegisterModel.num_layers", WIRE_MAX_LAYERS),
    MESSAGES("RegisterModel.groups", WIRE_MAX_GROUPS, layer_group_caps),
    NUMBER("RegisterModel.num_q_heads", WIRE_MAX_HEADS),
    NUMBER("RegisterModel.num_kv_heads", WIRE_MAX_HEADS),
    NUMBER("RegisterModel.k_head_dim", WIRE_MAX_HEAD_DIM),
    NUMBER("RegisterModel.v_head_dim", WIRE_MAX_HEAD_DIM),
    NUMBER("RegisterModel.mla_v_dim", WIRE_MAX_HEAD_DIM),
    NUMBER("RegisterModel.dtype", WIRE_ANY),
    NUMBER("RegisterModel.block_tokens", WIRE_MAX_BLOCK_TOKENS),
    STRING("RegisterModel.rope_kind", WIRE_MAX_NAME_BYTES),
    NUMBER("RegisterModel.rope_theta", WIRE_ANY),
    NUMBER("RegisterModel.rope_dims", WIRE_MAX_HEAD_DIM),
    STRING("RegisterModel.rope_scaling", WIRE_MAX_TEXT_BYTES),
    NUMBER("RegisterModel.tp_ranks", WIRE_MAX_RANKS),
    STRING("RegisterModel.layout_name", WIRE_MAX_NAME_BYTES),
    NUMBER("RegisterModel.layout_version", WIRE_ANY),
    NUMBER("RegisterModel.opaque_block_bytes", WIRE_MAX_OPAQUE_BYTES),
};
static CAPS_OF(register_model, register_model_caps);

static const struct wire_cap open_arena_caps[] = {
    NUMBER("OpenArena.model", WIRE_ANY),
    NUMBER("OpenArena.group", WIRE_MAX_GROUPS - 1),
    STRING("OpenArena.domain", WIRE_MAX_PAYER_BYTES),
};
static CAPS_OF(open_arena, open_arena_caps);

static const struct wire_cap extra_caps[] = {
    NUMBER("Extra.block", WIRE_MAX_TOKENS - 1),
    BYTES("Extra.bytes", WIRE_MAX_EXTRA_BYTES, 1),
};
static CAPS_OF(extra, extra_caps);

static const struct wire_cap prompt_caps[] = {
    NUMBER("Prompt.model", WIRE_ANY),
    BYTES("Prompt.tokens", WIRE_MAX_TOKENS, 4),
    STRING("Prompt.shared_domain", WIRE_MAX_PAYER_BYTES),
    STRING("Prompt.fill_domain", WIRE_MAX_PAYER_BYTES),
    BYTES("Prompt.salt", WIRE_MAX_SALT_BYTES, 1),
    STRING("Prompt.adapter", WIRE_MAX_NAME_BYTES),
    NUMBER("Prompt.adapter_generation", WIRE_ANY),
    MESSAGES("Prompt.extras", WIRE_MAX_EXTRAS, extra_caps),
    NUMBER("Prompt.raw", WIRE_ANY),
};
static CAPS_OF(prompt, prompt_caps);

static const struct wire_cap match_caps[] = {
    MESSAGE("Match.prompt", prompt_caps),
};
static CAPS_OF(match, match_caps);

static const struct wire_cap prefetch_caps[] = {
    MESSAGE("Prefetch.prompt", prompt_caps),
    NUMBER("Prefetch.sequence", WIRE_ANY),
    NUMBER("Prefetch.of_sequence", WIRE_ANY),
};
static CAPS_OF(prefetch, prefetch_caps);

static const struct wire_cap allocate_caps[] = {
    NUMBER("Allocate.sequence", WIRE_ANY),
    MESSAGE("Allocate.prompt", prompt_caps),
    NUMBER("Allocate.unfilled", WIRE_ANY),
    NUMBER("Allocate.has_take", WIRE_ANY),
    NUMBER("Allocate.take", WIRE_ANY),
    NUMBER("Allocate.want_table", WIRE_ANY),
};
static CAPS_OF(allocate, allocate_caps);

static const struct wire_cap resume_caps[] = {
    NUMBER("Resume.sequence", WIRE_ANY),
    NUMBER("Resume.unfilled", WIRE_ANY),
    NUMBER("Resume.has_take", WIRE_ANY),
    NUMBER("Resume.take", WIRE_ANY),
    NUMBER("Resume.want_table", WIRE_ANY),
};
static CAPS_OF(resume, resume_caps);

static const struct wire_cap append_caps[] = {
    NUMBER("Append.sequence", WIRE_ANY),
    BYTES("Append.tokens", WIRE_MAX_TOKENS, 4),
    NUMBER("Append.want_table", WIRE_ANY),
};
static CAPS_OF(append, append_caps);

static const struct wire_cap sequence_ref_caps[] = {
    NUMBER("SequenceRef.sequence", WIRE_ANY),
    NUMBER("SequenceRef.want_table", WIRE_ANY),
    NUMBER("SequenceRef.num_tokens", WIRE_ANY),
};
static CAPS_OF(sequence_ref, sequence_ref_caps);

static const struct wire_cap fork_caps[] = {
    NUMBER("Fork.sequence", WIRE_ANY),
    NUMBER("Fork.child", WIRE_ANY),
    NUMBER("Fork.want_table", WIRE_ANY),
};
static CAPS_OF(fork, fork_caps);

static const struct wire_cap truncate_caps[] = {
    NUMBER("Truncate.sequence", WIRE_ANY),
    NUMBER("Truncate.num_tokens", WIRE_ANY),
    NUMBER("Truncate.want_table", WIRE_ANY),
};
static CAPS_OF(truncate, truncate_caps);

static const struct wire_cap write_caps[] = {
    NUMBER("Write.sequence", WIRE_ANY),
    NUMBER("Write.group", WIRE_MAX_GROUPS - 1),
    NUMBER("Write.first_block", WIRE_MAX_TOKENS - 1),
    NUMBER("Write.num_blocks", WIRE_MAX_BLOCKS),
    NUMBER("Write.in_staging", WIRE_ANY),
    NUMBER("Write.offset", WIRE_ANY),
};
static CAPS_OF(write, write_caps);

static const struct wire_cap read_caps[] = {
    NUMBER("Read.sequence", WIRE_ANY),
    NUMBER("Read.group", WIRE_MAX_GROUPS - 1),
    NUMBER("Read.first_block", WIRE_MAX_TOKENS - 1),
    NUMBER("Read.num_blocks", WIRE_MAX_BLOCKS),
    NUMBER("Read.in_staging", WIRE_ANY),
    NUMBER("Read.offset", WIRE_ANY),
};
static CAPS_OF(read, read_caps);

static const struct wire_cap cancel_caps[] = {
    NUMBER("Cancel.request", WIRE_ANY),
};
static CAPS_OF(cancel, cancel_caps);

static const struct wire_cap row_caps[] = {
    NUMBER("Row.sequence", WIRE_ANY),
    BYTES("Row.tokens", WIRE_MAX_TOKENS, 4),
};
static CAPS_OF(row, row_caps);

static const struct wire_cap step_caps[] = {
    MESSAGES("Step.rows", WIRE_MAX_ROWS, row_caps),
};
static CAPS_OF(step, step_caps);

static const struct wire_cap attend_caps[] = {
    NUMBER("Attend.step", WIRE_ANY),
    NUMBER("Attend.layer", WIRE_MAX_LAYERS - 1),
    NUMBER("Attend.dtype", WIRE_ANY),
    NUMBER("Attend.q_offset", WIRE_ANY),
    NUMBER("Attend.k_offset", WIRE_ANY),
    NUMBER("Attend.v_offset", WIRE_ANY),
    NUMBER("Attend.out_offset", WIRE_ANY),
    NUMBER("Attend.want_lse", WIRE_ANY),
    NUMBER("Attend.lse_offset", WIRE_ANY),
    NUMBER("Attend.scale", WIRE_ANY),
    NUMBER("Attend.soft_cap", WIRE_ANY),
    NUMBER("Attend.has_sinks", WIRE_ANY),
    NUMBER("Attend.sinks_offset", WIRE_ANY),
};
static CAPS_OF(attend, attend_caps);

static const struct wire_cap end_step_caps[] = {
    NUMBER("EndStep.step", WIRE_ANY),
    NUMBER("EndStep.abandon", WIRE_ANY),
};
static CAPS_OF(end_step, end_step_caps);

static const struct wire_cap stats_request_caps[] = {
    NUMBER("StatsRequest.want_events", WIRE_ANY),
    NUMBER("StatsRequest.after", WIRE_ANY),
};
static CAPS_OF(stats_request, stats_request_caps);

static const struct wire_cap drain_caps[] = {
    NUMBER("Drain.undo", WIRE_ANY),
};
static CAPS_OF(drain, drain_caps);

static const struct wire_cap clear_caps[] = {
    STRING("Clear.domain", WIRE_MAX_PAYER_BYTES),
    STRING("Clear.model", WIRE_MAX_NAME_BYTES),
};
static CAPS_OF(clear, clear_caps);

static const struct wire_cap set_quota_caps[] = {
    STRING("SetQuota.payer", WIRE_MAX_PAYER_BYTES),
    NUMBER("SetQuota.guarantee_bytes", WIRE_ANY),
    NUMBER("SetQuota.has_limit", WIRE_ANY),
    NUMBER("SetQuota.limit_bytes", WIRE_ANY),
    NUMBER("SetQuota.weight", WIRE_MAX_WEIGHT),
    STRING("SetQuota.tier", WIRE_MAX_PAYER_BYTES),
};
static CAPS_OF(set_quota, set_quota_caps);

static const struct wire_cap create_domain_caps[] = {
    STRING("CreateDomain.name", WIRE_MAX_PAYER_BYTES),
    STRINGS("CreateDomain.readers", WIRE_MAX_MEMBERS, WIRE_MAX_PAYER_BYTES),
    STRINGS("CreateDomain.fillers", WIRE_MAX_MEMBERS, WIRE_MAX_PAYER_BYTES),
    NUMBER("CreateDomain.guarantee_bytes", WIRE_ANY),
    NUMBER("CreateDomain.has_limit", WIRE_ANY),
    NUMBER("CreateDomain.limit_bytes", WIRE_ANY),
    NUMBER("CreateDomain.weight", WIRE_MAX_WEIGHT),
};
static CAPS_OF(create_domain, create_domain_caps);

static const struct wire_cap list_caps[] = {
    STRING("List.what", WIRE_MAX_NAME_BYTES),
};
static CAPS_OF(list, list_caps);

static const struct wire_cap kick_caps[] = {
    NUMBER("Kick.session", WIRE_ANY),
};
static CAPS_OF(kick, kick_caps);

static const struct wire_cap shutdown_caps[] = {
    NUMBER("Shutdown.forget", WIRE_ANY),
};
static CAPS_OF(shutdown, shutdown_caps);

static const struct wire_cap request_caps[] = {
    NUMBER("Request.id", WIRE_ANY),
    NUMBER("Request.deadline_ms", WIRE_MAX_DEADLINE_MS),
    MESSAGE("Request.register_model", register_model_caps),
    MESSAGE("Request.open_arena", open_arena_caps),
    MESSAGE("Request.allocate", allocate_caps),
    MESSAGE("Request.append", append_caps),
    MESSAGE("Request.step", step_caps),
    MESSAGE("Request.attend", attend_caps),
    MESSAGE("Request.end_step", end_step_caps),
    MESSAGE("Request.publish", sequence_ref_caps),
    MESSAGE("Request.write", write_caps),
    MESSAGE("Request.read", read_caps),
    MESSAGE("Request.fork", fork_caps),
    MESSAGE("Request.truncate", truncate_caps),
    MESSAGE("Request.release", sequence_ref_caps),
    MESSAGE("Request.preempt", sequence_ref_caps),
    MESSAGE("Request.resume", resume_caps),
    MESSAGE("Request.match", match_caps),
    MESSAGE("Request.wait_arriving", match_caps),
    MESSAGE("Request.prefetch", prefetch_caps),
    MESSAGE("Request.cancel", cancel_caps),
    MESSAGE("Request.stats", stats_request_caps),
    MESSAGE("Request.fill", sequence_ref_caps),
    MESSAGE("Request.drain", drain_caps),
    MESSAGE("Request.clear", clear_caps),
    MESSAGE("Request.set_quota", set_quota_caps),
    MESSAGE("Request.create_domain", create_domain_caps),
    MESSAGE("Request.list", list_caps),
    MESSAGE("Request.kick", kick_caps),
    MESSAGE("Request.shutdown", shutdown_caps),
};
CAPS_OF(request, request_caps);

static const struct wire_cap batch_caps[] = {
    NUMBER("Batch.major", WIRE_ANY),
    NUMBER("Batch.minor", WIRE_ANY),
    NUMBER("Batch.session", WIRE_ANY),
    BYTES("Batch.token", 1, WIRE_TOKEN_BYTES),
    MESSAGES("Batch.requests", WIRE_MAX_REQUESTS, request_caps),
};
CAPS_OF(batch, batch_caps);

/* ---- replies ---- */

static const struct wire_cap model_result_caps[] = {
    NUMBER("ModelResult.model", WIRE_ANY),
    NUMBERS("ModelResult.block_bytes", WIRE_MAX_GROUPS),
    NUMBERS("ModelResult.stride_bytes", WIRE_MAX_GROUPS),
    NUMBERS("ModelResult.slots_per_granule", WIRE_MAX_GROUPS),
};
static CAPS_OF(model_result, model_result_caps);

static const struct wire_cap arena_result_caps[] = {
    NUMBER("ArenaResult.arena", WIRE_ANY),
    NUMBER("ArenaResult.stride_bytes", WIRE_ANY),
    NUMBER("ArenaResult.max_bytes", WIRE_ANY),
    NUMBER("ArenaResult.is_writable", WIRE_ANY),
};
static CAPS_OF(arena_result, arena_result_caps);

static const struct wire_cap table_caps[] = {
    NUMBERS("Table.slots", WIRE_MAX_TABLE),
    NUMBERS("Table.generations", WIRE_MAX_TABLE),
    NUMBER("Table.num_shared", WIRE_MAX_TABLE),
};
static CAPS_OF(table, table_caps);

static const struct wire_cap table_result_caps[] = {
    NUMBER("TableResult.matched", WIRE_ANY),
    NUMBER("TableResult.arriving", WIRE_ANY),
    NUMBER("TableResult.length", WIRE_ANY),
    MESSAGES("TableResult.tables", WIRE_MAX_GROUPS, table_caps),
    NUMBER("TableResult.below", WIRE_ANY),
};
static CAPS_OF(table_result, table_result_caps);

static const struct wire_cap step_result_caps[] = {
    NUMBER("StepResult.step", WIRE_ANY),
    NUMBER("StepResult.num_rows", WIRE_ANY),
};
static CAPS_OF(step_result, step_result_caps);

static const struct wire_cap match_result_caps[] = {
    NUMBER("MatchResult.matched", WIRE_ANY),
    NUMBER("MatchResult.arriving", WIRE_ANY),
    NUMBER("MatchResult.below", WIRE_ANY),
    NUMBER("MatchResult.present", WIRE_ANY),
    NUMBER("MatchResult.coming", WIRE_ANY),
};
static CAPS_OF(match_result, match_result_caps);

static const struct wire_cap data_result_caps[] = {
    NUMBER("DataResult.num_bytes", WIRE_ANY),
};
static CAPS_OF(data_result, data_result_caps);

static const struct wire_cap stats_result_caps[] = {
    STRING("StatsResult.json", WIRE_MAX_JSON_BYTES),
};
static CAPS_OF(stats_result, stats_result_caps);

static const struct wire_cap list_result_caps[] = {
    STRING("ListResult.json", WIRE_MAX_JSON_BYTES),
};
static CAPS_OF(list_result, list_result_caps);

static const struct wire_cap reply_caps[] = {
    NUMBER("Reply.id", WIRE_ANY),
    NUMBER("Reply.status", WIRE_ANY),
    STRING("Reply.message", WIRE_MAX_TEXT_BYTES),
    MESSAGE("Reply.model", model_result_caps),
    MESSAGE("Reply.arena", arena_result_caps),
    MESSAGE("Reply.table", table_result_caps),
    MESSAGE("Reply.step", step_result_caps),
    MESSAGE("Reply.match", match_result_caps),
    MESSAGE("Reply.data", data_result_caps),
    MESSAGE("Reply.stats", stats_result_caps),
    MESSAGE("Reply.list", list_result_caps),
};
static CAPS_OF(reply, reply_caps);

static const struct wire_cap reply_batch_caps[] = {
    BYTES("ReplyBatch.boot_id", 1, WIRE_TOKEN_BYTES),
    NUMBER("ReplyBatch.major", WIRE_ANY),
    NUMBER("ReplyBatch.minor", WIRE_ANY),
    MESSAGES("ReplyBatch.replies", WIRE_MAX_REQUESTS, reply_caps),
};
CAPS_OF(reply_batch, reply_batch_caps);
/* clang-format on */
