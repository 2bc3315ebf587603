/* client-lib/status.c - what a result means, for people. */
#include <string.h>

#include "client-lib/client.h"

_Static_assert((int)KVPOOL_NUM_STATUSES == (int)NUM_STATUSES, "the wire's, one for one");
_Static_assert((int)KVPOOL_DISCONNECTED == (int)STATUS_DISCONNECTED, "the wire's, one for one");
_Static_assert((int)KVPOOL_OPAQUE == (int)WIRE_OPAQUE, "the wire's, one for one");
_Static_assert((int)KVPOOL_MAPPED == (int)HELLO_MAPPED, "the hello's, one for one");
_Static_assert((int)KVPOOL_STORE_NONE == (int)HELLO_STORE_NONE, "the hello's, one for one");
_Static_assert((int)KVPOOL_STORE_PROMPT == (int)HELLO_STORE_PROMPT, "the hello's, one for one");
_Static_assert((int)KVPOOL_STORE_ALL == (int)HELLO_STORE_ALL, "the hello's, one for one");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token ids go out as they lie in memory");

const char *kvpool_status_name(int status)
{
    if (status >= 0)
        return wire_status_row((uint32_t)status)->name;
    const char *name = strerrorname_np(-status);
    return name ? name : "UNKNOWN";
}

const char *kvpool_status_text(int status)
{
    if (status >= 0)
        return wire_status_row((uint32_t)status)->text;
    const char *text = strerrordesc_np(-status);
    return text ? text : "no such error";
}

bool kvpool_status_may_retry(int status)
{
    return status > 0 && wire_status_row((uint32_t)status)->may_retry;
}
