/* SPDX-License-Identifier: Apache-2.0 */
/* YAML from a file. */
#include "yaml_file.h"
#include "yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_file(FILE *f, const char *path, char **ret, size_t *ret_n, struct jm_err *err)
{
	char *text = malloc(JM_YAML_BYTES_MOST + 1);
	size_t n;

	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the file %s.", path);
	errno = 0;
	n = fread(text, 1, JM_YAML_BYTES_MOST + 1, f);
	if (!ferror(f) && n <= JM_YAML_BYTES_MOST) {
		*ret = text;
		*ret_n = n;
		return 0;
	}
	free(text);
	if (n > JM_YAML_BYTES_MOST)
		return jm_err_set(err, JM_ERANGE, "The file %s is larger than %d MiB.", path,
			JM_YAML_BYTES_MOST >> 20);
	return jm_err_set(err, JM_EIO, "Reading the file %s failed: %s.", path, strerror(errno));
}

int jm_yaml_load(const char *path, struct jm_yaml_document **ret, struct jm_err *err)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t n = 0;
	int rc;

	if (!f)
		return jm_err_set(err, errno == ENOENT ? JM_ENOENT : JM_EIO,
			"The file %s cannot be opened: %s.", path, strerror(errno));
	rc = read_file(f, path, &text, &n, err);
	fclose(f);
	if (rc)
		return rc;
	rc = jm_yaml_parse(text, n, path, ret, err);
	free(text);
	return rc;
}
