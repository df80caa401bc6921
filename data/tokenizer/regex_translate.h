/* SPDX-License-Identifier: Apache-2.0 */
/* From Oniguruma's regular expressions to PCRE2's. */
#ifndef JM_REGEX_TRANSLATE_H
#define JM_REGEX_TRANSLATE_H

#include "joulemark.h"
#include "data/tokenizer/bytes.h"

/* The pattern as PCRE2 gets it. 0, or JM_ENOSUP or JM_ENOMEM with *ret_what: what is not
 * supported. */
int jm__regex_translate(const char *pattern, size_t n, struct jm_bytes *ret, const char **ret_what);

#endif
