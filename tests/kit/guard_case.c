/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the tests of guard and journals share. This program is executed again as the
 * guard. */
#include "guard_case.h"
#include "guard/guard_requests.h"
#include "base/ctx.h"
#include "guard/guard_serve.h"

#include "tests/peers/nvml_fake.h"

static void keep_log(void *arg, enum jm_level level, const char *line)
{
	struct fixture *f = arg;

	(void)level;
	strncat(f->log, line, sizeof(f->log) - strlen(f->log) - 1);
}

void configure(const char *extra)
{
	char text[256];

	snprintf(text, sizeof(text), "gpus=%d;%s", GPUS, extra);
	setenv("JM_FAKE_NVML", text, 1);
}

int guard_setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char library[512];

	jm_ctx_init(&f->ctx, NULL);
	f->ctx.guard_program = "/proc/self/exe"; /* guard_main */
	f->ctx.log = keep_log;
	f->ctx.log_arg = f;
	snprintf(f->folder, sizeof(f->folder), "/tmp/jm-guard-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->driver, sizeof(f->driver), "%s/driver", f->folder);
	snprintf(library, sizeof(library), "%s/tests/peers/libnvidia-ml-fake.so",
		getenv("JM_BUILD"));
	setenv("JM_NVML_LIB", library, 1);
	setenv("JM_FAKE_NVML_STATE", f->driver, 1);
	setenv("JM_STATE", f->folder, 1);
	configure("");
	*state = f;
	return 0;
}

int guard_teardown(void **state)
{
	struct fixture *f = *state;
	char command[400];

	snprintf(command, sizeof(command), "rm -rf %s", f->folder);
	if (system(command))
		return -1;
	free(f);
	return 0;
}

double limit(struct fixture *f, int gpu)
{
	struct state *s = malloc(sizeof(*s));
	int fd = open(f->driver, O_RDONLY | O_CLOEXEC);
	double watts = NAN;

	assert_int_equal(read(fd, s, sizeof(*s)), sizeof(*s));
	watts = s->gpu[gpu].requested_mw / 1000.0;
	close(fd);
	free(s);
	return watts;
}

void limits_are(struct fixture *f, double a, double b, double c, double d)
{
	const double want[GPUS] = {a, b, c, d};

	for (int i = 0; i < GPUS; i++)
		if (limit(f, i) != want[i])
			fail_msg("GPU %d stands at %g W, not %g W; log: %s", i, limit(f, i),
				want[i], f->log);
}

int journals(struct fixture *f)
{
	char path[300];
	struct dirent *e;
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "%s/knobs", f->folder);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		n += strstr(e->d_name, ".journal") != NULL;
	if (dir)
		closedir(dir);
	return n;
}

struct jm_guard *start(struct fixture *f)
{
	struct jm_guard *g = NULL;

	if (jm_guard_start(&f->ctx, "nvml", &g, &f->err))
		fail_msg("%s", f->err.text);
	return g;
}

int set(struct fixture *f, struct jm_guard *g, const char *selector, double watts)
{
	return set_value(f, g, selector, jm_knob_value_of(watts));
}

int set_value(
	struct fixture *f, struct jm_guard *g, const char *selector, struct jm_knob_value value)
{
	struct jm_setting s = {.knob = "gpu.power", .value = value};

	snprintf(s.selector, sizeof(s.selector), "%s", selector);
	return jm_guard_set(g, &s, 1, f->out, &f->n, &f->err);
}

int guard_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
	struct jm_ctx ctx;

	if (argc > 1 && !strcmp(argv[1], "guard"))
		return jm_ctx_init(&ctx, NULL) || jm_guard_serve(&ctx, JM_WIRE_FD, NULL);
	return _cmocka_run_group_tests("guard", tests, n, NULL, NULL);
}
