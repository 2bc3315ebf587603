/* offload/hash_plain.c - hashes as the compiler makes them for any processor. */
#define HASH_KERNEL hash_plain
#include "offload/hash_kernel.inc.h"
