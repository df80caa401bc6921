/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a code and one sentence in the caller's place. */
#include "joulemark.h"
#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>

#undef jm_err_set
int jm_err_set(struct jm_err *err, int code, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!err || err->code)
		return code;
	err->code = code;
	va_start(ap, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(err->text))
		jm_text_shorten(err->text, sizeof(err->text));
	jm_text_tame(err->text);
	return code;
}

const char *jm_err_name(int code)
{
	switch (code) {
	case JM_OK:
		return "no error";
#define X(name, text)                                                                              \
	case JM_E##name:                                                                           \
		return text;
		JM_ERRORS(X)
#undef X
	default:
		return "unknown error";
	}
}
