/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in text, and nothing else: the C library's parsers take spaces, signs, hexadecimals and
 * words too. */
#ifndef JM_NUMBER_H
#define JM_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* A decimal number, all of the text: "12", "-1.5e3", "+2". Not " 1", "0x10", "inf", "1e999", "1
 * J". */
bool jm_number_real(const char *text, double *ret);
/* A whole number of decimal digits, all of the text, of at most `most`. Not "-1", "+1", " 1",
 * "1\n". */
bool jm_number_whole(const char *text, uint64_t most, uint64_t *ret);

/* Digits behind the point, 2 to 9, so that a size above 0 has at least two that are not 0. */
int jm_number_digits(double size);
/* Bytes for "%.*f GB". */
#define JM_GB(bytes) jm_number_digits((double)(bytes) / 1e9), (double)(bytes) / 1e9

#endif
