/* tests/client-lib/header.cpp - kvpool.h is C++ too. */
#include "client-lib/kvpool.h"

int main()
{
    struct kvpool_options options = {};
    options.struct_bytes = sizeof(options);
    return options.dir != nullptr;
}
