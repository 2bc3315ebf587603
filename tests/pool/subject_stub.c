/* tests/pool/subject_stub.c - the model in the core's place, until subject_core.c is there. */
#include "tests/pool/script.h"

static void *create(void)
{
    return subject_model.create();
}

static void destroy(void *self)
{
    subject_model.destroy(self);
}

static void run(void *self, const struct script_command *command, struct text *answer)
{
    subject_model.run(self, command, answer);
}

const struct script_subject subject_core = {
    .name = "model in the core's place", .create = create, .destroy = destroy, .run = run};
