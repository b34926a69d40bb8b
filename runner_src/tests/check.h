// The least a C++ test needs: CHECK prints what failed and where, and makes the program exit with 1.
#pragma once

#include <cstdio>

static int failures = 0;

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #what);       \
            failures++;                                                          \
        }                                                                        \
    } while (0)

#define RESULT() (failures == 0 ? 0 : 1)
