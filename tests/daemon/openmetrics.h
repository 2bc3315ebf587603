/* tests/daemon/openmetrics.h - whether a text keeps the rules of the exposition formats. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Checks names, labels, escapes, values; that a family has one HELP and one TYPE before its
 * samples, stands in one piece, and has the names of samples that its type wants; that no sample is
 * there twice; and the end. False: @out_why says what and on which line.
 */
bool metrics_check(const char *text, bool is_openmetrics, char *out_why, size_t size);

/* The value of the sample that is written exactly as @sample, or -1. */
double metrics_find(const char *text, const char *sample);
