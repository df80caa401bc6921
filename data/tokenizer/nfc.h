/* SPDX-License-Identifier: Apache-2.0 */
/* Normal form C of texts. */
#ifndef JM_NFC_H
#define JM_NFC_H

#include "data/tokenizer/bytes.h"

bool jm__nfc(const char *text, size_t n, struct jm_bytes *ret);

#endif
