/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of the fake NVML, the true power of its GPUs, and the limits that persist after
 * a process. */
#include "nvml_fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SAW_STEPS    64
#define RANDOM_STEPS 400

struct fake fake = {.state_fd = -1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- configuration --------------------------------------------------------------------------- */

/* A file in the folder of this library, for programs that have no such environment; "" = none. */
static void beside_library(const char *name, char *out, size_t size)
{
	Dl_info info = {0};
	const char *end = dladdr(&fake, &info) ? strrchr(info.dli_fname, '/') : NULL;

	*out = '\0';
	if (end)
		snprintf(out, size, "%.*s/%s", (int)(end - info.dli_fname), info.dli_fname, name);
}

static const char *configuration(void)
{
	static char text[1024];
	const char *given = getenv("JM_FAKE_NVML");
	char path[512];
	FILE *f;

	beside_library("nvml-fake.conf", path, sizeof(path));
	f = given || !*path ? NULL : fopen(path, "re");
	if (!f)
		return given;
	if (!fgets(text, sizeof(text), f))
		*text = '\0';
	fclose(f);
	return text;
}

/* Copies the value of key from the configuration; false when it is not there. */
static bool lookup(const char *key, char *out, size_t size)
{
	const char *s = configuration();
	size_t n = strlen(key);

	while (s && *s) {
		size_t len = strcspn(s, ";");

		if (len > n && !strncmp(s, key, n) && s[n] == '=') {
			snprintf(out, size, "%.*s", (int)(len - n - 1), s + n + 1);
			return true;
		}
		s += len + (s[len] == ';');
	}
	return false;
}

static double number(const char *key, double fallback)
{
	char text[64];

	return lookup(key, text, sizeof(text)) ? strtod(text, NULL) : fallback;
}

static void add_step(double watts, double seconds)
{
	if (fake.n_steps == MAX_STEPS || !(seconds > 0))
		return;
	fake.watts[fake.n_steps] = watts;
	fake.seconds[fake.n_steps++] = seconds;
	fake.period += seconds;
}

static void add_saw(double low, double high, double period)
{
	for (int i = 0; i < SAW_STEPS; i++)
		add_step(low + (high - low) * (i + 0.5) / SAW_STEPS, period / SAW_STEPS);
}

static void add_random(double low, double high, double dwell, unsigned int seed)
{
	for (int i = 0; i < RANDOM_STEPS; i++) {
		double share = (double)rand_r(&seed) / RAND_MAX;

		add_step(low + (high - low) * share,
			-dwell * log(1 - (double)rand_r(&seed) / (RAND_MAX + 1.0)) + 1e-6);
	}
}

/* The forms of two levels and a period; false for another name. */
static bool add_form(const char *wave, double low, double high, double period)
{
	bool square = !strcmp(wave, "square");
	double duty = number("duty", square ? 0.5 : 0.1);

	if (square || !strcmp(wave, "spikes")) {
		add_step(high, period * duty);
		add_step(low, period * (1 - duty));
	} else if (!strcmp(wave, "saw")) {
		add_saw(low, high, period);
	} else if (!strcmp(wave, "random")) {
		add_random(low, high, period / 2, (unsigned int)number("seed", 1));
	} else {
		return false;
	}
	return true;
}

static void configure_wave(void)
{
	char wave[16] = "const", steps[8192];

	lookup("wave", wave, sizeof(wave));
	fake.n_steps = 0;
	fake.period = 0;
	if (!add_form(wave, number("low", 100), number("high", 600), number("period", 2)) &&
		!strcmp(wave, "steps") && lookup("steps", steps, sizeof(steps))) {
		for (char *s = steps; *s; s += *s == '/') {
			double watts = strtod(s, &s);

			add_step(watts, *s == '*' ? strtod(s + 1, &s) : 1);
			s += strcspn(s, "/");
		}
	}
	if (!fake.n_steps)
		add_step(number("power", 300), 1);
}

/* "1@2.5,3@4" or "1:250": index, a sign, a number. */
static void configure_each(const char *key, double *out)
{
	char text[512];

	memset(out, 0, MAX_GPUS * sizeof(*out));
	if (!lookup(key, text, sizeof(text)))
		return;
	for (char *s = text; *s; s += *s == ',') {
		long i = strtol(s, &s, 10);
		double value = *s == '@' || *s == ':' ? strtod(s + 1, &s) : 1;

		if (i >= 0 && i < MAX_GPUS)
			out[i] = value;
		s += strcspn(s, ",");
	}
}

static void configure_files(void)
{
	fake.lag_file[0] = '\0';
	lookup("lagfile", fake.lag_file, sizeof(fake.lag_file));
	fake.deny_file[0] = '\0';
	lookup("denyfile", fake.deny_file, sizeof(fake.deny_file));
	fake.busy_file[0] = '\0';
	lookup("busyfile", fake.busy_file, sizeof(fake.busy_file));
	fake.users_file[0] = '\0';
	lookup("usersfile", fake.users_file, sizeof(fake.users_file));
}

static void configure_hardware(void)
{
	configure_each("mig", fake.mig);
	fake.cores = (unsigned int)number("cores", 16896);
	fake.bus_bits = (unsigned int)number("bus", 5120);
	fake.sm_mhz = (unsigned int)number("smmax", 1980);
	fake.memory_mhz = (unsigned int)number("memmax", 2619);
	fake.memory_bytes = number("bytes", 85520809984.0);
	fake.memory_used = number("used", 8e9);
	fake.clocks = number("clocks", 0) != 0;
	fake.power_state = (unsigned int)number("pstate", 0);
	fake.persistence = number("persistence", 1) != 0;
}

static void configure_faults(void)
{
	char text[256] = "";
	double denied[MAX_GPUS];

	configure_each("lost", fake.lost_at);
	configure_each("fails", fake.fails_at);
	configure_each("freeze", fake.freeze_at);
	configure_each("thaw", fake.thaw_at);
	configure_each("jump", fake.jump_at);
	configure_each("reset", fake.reset_at);
	fake.jump_joules = number("jumpj", 1e6);
	configure_each("enforce", fake.enforce_w);
	configure_each("lacks", fake.lacks);
	configure_each("lostlimit", fake.lost_limit);
	configure_each("setlag", fake.set_lag);
	configure_each("getlag", fake.get_lag);
	configure_each("readlag", fake.read_lag);
	configure_each("uselag", fake.use_lag);
	fake.init_lag = number("initlag", 0);
	fake.deny_all = lookup("deny", text, sizeof(text)) && !strcmp(text, "all");
	fake.deny_users = *text && !strcmp(text, "users");
	configure_each("deny", denied);
	for (int i = 0; i < MAX_GPUS; i++)
		fake.deny[i] = !fake.deny_all && !fake.deny_users && denied[i] != 0;
	fake.deny_users = fake.deny_users || number("users", 0) != 0;
	fake.n_nosupport = 0;
	if (lookup("nosupport", text, sizeof(text)))
		for (char *save = NULL, *w = strtok_r(text, ",", &save); w && fake.n_nosupport < 16;
			w = strtok_r(NULL, ",", &save))
			fake.nosupport[fake.n_nosupport++] = (unsigned int)strtoul(w, NULL, 10);
	fake.lost_by_field = number("lostfield", 0) != 0;
	fake.ahead = number("ahead", 0);
	fake.ahead_at = number("aheadat", 0);
	fake.latency_us = (long)number("latency", 0);
	fake.set_latency_us = (long)number("setlatency", 0);
	fake.cost_us = (long)number("cost", 0);
	fake.energy_cost_us = (long)number("energycost", 0);
	fake.no_sets = (long)number("nosets", -1);
	fake.init_rc = (int)number("init", 0);
}

void fake_configure(void)
{
	char text[32];

	fake.gpus = (int)number("gpus", 1);
	if (fake.gpus > MAX_GPUS)
		fake.gpus = MAX_GPUS;
	fake.arch = (int)number("arch", JM_NVML_HOPPER);
	fake.cc = (int)number("cc", 90);
	snprintf(fake.name, sizeof(fake.name), "NVIDIA H100 80GB HBM3");
	lookup("name", fake.name, sizeof(fake.name));
	fake.mixed = number("mixed", 0) != 0;
	fake.response = number("response", 0) != 0;
	fake.stamp_sensor = lookup("stamp", text, sizeof(text)) && !strcmp(text, "sensor");
	fake.phase = number("phase", 0);
	fake.shift = number("shift", 0);
	fake.refresh = number("refresh", 0.1);
	fake.window = number("window", 0.025);
	fake.average = number("average", 1);
	fake.step = number("step", 0.1);
	fake.mem = number("mem", 0);
	fake.module = number("module", 0);
	snprintf(fake.driver, sizeof(fake.driver), "580.00.fake");
	lookup("driver", fake.driver, sizeof(fake.driver));
	fake.time_ids = (unsigned int)number("times", JM_NVML_TIME_HW_THERMAL_575);
	fake.heat = number("heat", 0);
	fake.brake = number("brake", 0);
	fake.activity = number("activity", 0) != 0;
	fake.samples = number("samples", 0) != 0;
	fake.nvlink_mib = number("nvlink", 0);
	fake.min_w = number("min", 200);
	fake.max_w = number("max", 700);
	fake.default_w = number("default", 700);
	configure_wave();
	configure_faults();
	configure_files();
	configure_hardware();
}

bool fake_is_denied(int gpu)
{
	return (fake.deny_all || fake.deny[gpu] || (fake.deny_users && geteuid() != 0)) &&
	       (!*fake.deny_file || !access(fake.deny_file, F_OK));
}

unsigned int fake_clock(int gpu, bool memory)
{
	const struct locked *range =
		memory ? &fake.state->memory_clock[gpu] : &fake.state->clock[gpu];
	unsigned int free_mhz = memory ? 2619 : 1980;

	if (*fake.busy_file && access(fake.busy_file, F_OK))
		return range->min ? range->min : memory ? LOW_MEMORY : LOWEST;
	return range->max && range->max < free_mhz ? range->max : free_mhz;
}

/* ---- time, power, energy --------------------------------------------------------------------- */

static double seconds_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

double fake_now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

void fake_wait_us(long us)
{
	struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	if (us > 0)
		nanosleep(&ts, NULL);
}

void fake_lag(double seconds)
{
	double end = fake_now() + seconds;

	while (fake_now() < end && (!*fake.lag_file || !access(fake.lag_file, F_OK)))
		fake_wait_us(seconds < 0.01 ? (long)(seconds * 1e6) : 5000);
}

static double cut(double watts, double limit)
{
	return fake.response && watts > limit ? limit : watts;
}

/* Integral of the wave from its own beginning to x, every level cut to the limit. */
static double wave_joules(double x, double limit)
{
	double turns = floor(x / fake.period), rest = x - turns * fake.period, whole = 0, part = 0;

	for (int i = 0; i < fake.n_steps; i++) {
		double watts = cut(fake.watts[i], limit);
		double inside = rest < fake.seconds[i] ? rest : fake.seconds[i];

		whole += watts * fake.seconds[i];
		part += watts * inside;
		rest -= inside;
	}
	return turns * whole + part;
}

double fake_capped_seconds(int gpu, double t)
{
	double x = t + fake.phase + gpu * fake.shift, limit = fake_enforced_w(gpu);
	double turns = floor(x / fake.period), rest = x - turns * fake.period;
	double whole = 0, part = 0;

	for (int i = 0; i < fake.n_steps; i++) {
		double inside = fmax(0, fmin(rest, fake.seconds[i]));

		whole += fake.watts[i] > limit ? fake.seconds[i] : 0;
		part += fake.watts[i] > limit ? inside : 0;
		rest -= inside;
	}
	return turns * whole + part;
}

static double wave_between(int gpu, double t0, double t1, double limit)
{
	double lead = fake.phase + gpu * fake.shift;

	return wave_joules(t1 + lead, limit) - wave_joules(t0 + lead, limit);
}

/* E_i(t) */
double fake_joules(int gpu, double t)
{
	const struct gpu_state *g = &fake.state->gpu[gpu];
	int i = g->n_pieces - 1;

	while (i > 0 && g->piece[i].start > t)
		i--;
	return g->piece[i].joules + wave_between(gpu, g->piece[i].start, t, g->piece[i].limit_w);
}

/* When something that is set for so many seconds after init happens; INFINITY = never. */
static double moment(const double *after_init, int gpu)
{
	return after_init[gpu] > 0 ? fake.init_time + after_init[gpu] : INFINITY;
}

double fake_counted(int gpu, double t)
{
	double from = moment(fake.freeze_at, gpu), until = moment(fake.thaw_at, gpu);
	double reset = moment(fake.reset_at, gpu), joules = 0;

	/* the counter stays at its last value */
	if (isfinite(from))
		from = fake_last_tick(from, fake.step, fake_frac(0.754878 * (gpu + 1)));

	if (t >= until && from < until)
		joules -= fake_joules(gpu, until) - fake_joules(gpu, from);
	else if (t > from)
		t = from;
	joules += fake_joules(gpu, t);
	if (t >= reset)
		joules -= fake_joules(gpu, reset);
	return t >= moment(fake.jump_at, gpu) ? joules + fake.jump_joules : joules;
}

double fake_frac(double x)
{
	return x - floor(x);
}

double fake_last_tick(double t, double period, double phase)
{
	return period * (floor(t / period - phase) + phase);
}

double fake_watts(int gpu, double t)
{
	double x = t + fake.phase + gpu * fake.shift,
	       rest = x - fake.period * floor(x / fake.period);
	int i = 0;

	while (i < fake.n_steps - 1 && rest >= fake.seconds[i])
		rest -= fake.seconds[i++];
	return fake.watts[i];
}

double fake_mean_watts(int gpu, double end, double window)
{
	if (window <= 0)
		window = 1e-6;
	return (fake_joules(gpu, end) - fake_joules(gpu, end - window)) / window;
}

/* ---- the limits, which outlive the process --------------------------------------------------- */

static void first_state(struct state *s)
{
	memset(s, 0, sizeof(*s));
	for (int i = 0; i < MAX_GPUS; i++) {
		s->gpu[i].requested_mw = (unsigned int)(fake.default_w * 1000);
		s->gpu[i].n_pieces = 1;
		s->gpu[i].piece[0].limit_w = fake.default_w;
	}
	s->magic = MAGIC;
}

void fake_lock(void)
{
	pthread_mutex_lock(&lock);
	if (fake.state_fd >= 0)
		while (flock(fake.state_fd, LOCK_EX) && errno == EINTR)
			;
}

void fake_unlock(void)
{
	if (fake.state_fd >= 0)
		flock(fake.state_fd, LOCK_UN);
	pthread_mutex_unlock(&lock);
}

int fake_open_state(void)
{
	char beside[512] = "";
	const char *path = getenv("JM_FAKE_NVML_STATE");
	bool writes = true;
	void *map;

	if (!path && !getenv("JM_FAKE_NVML"))
		beside_library("nvml-fake.state", beside, sizeof(beside));
	if (*beside && !access(beside, F_OK))
		path = beside;
	if (path) {
		fake.state_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		writes = fake.state_fd >= 0;
		if (!writes)
			fake.state_fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fake.state_fd < 0)
			return -1;
	}
	fake_lock();
	if (path && writes && ftruncate(fake.state_fd, sizeof(struct state)))
		map = MAP_FAILED;
	else
		map = mmap(NULL, sizeof(struct state), PROT_READ | (writes ? PROT_WRITE : 0),
			path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fake.state_fd, 0);
	if (map != MAP_FAILED) {
		fake.state = map;
		if (writes && fake.state->magic != MAGIC)
			first_state(fake.state);
	}
	fake_unlock();
	return map == MAP_FAILED ? -1 : 0;
}

double fake_enforced_w(int gpu)
{
	return fake.enforce_w[gpu] > 0 ? fake.enforce_w[gpu]
				       : fake.state->gpu[gpu].requested_mw / 1000.0;
}

void fake_add_piece(int gpu, double t)
{
	struct gpu_state *g = &fake.state->gpu[gpu];
	struct piece next = {t, fake_enforced_w(gpu), fake_joules(gpu, t)};

	if (g->n_pieces == MAX_PIECES) {
		memmove(&g->piece[0], &g->piece[1], sizeof(g->piece) - sizeof(g->piece[0]));
		g->n_pieces--;
	}
	g->piece[g->n_pieces++] = next;
}

static int first_init(void)
{
	fake_configure();
	fake_lag(fake.init_lag);
	if (fake.init_rc)
		return fake.init_rc;
	if (!fake.state && fake_open_state())
		return JM_NVML_UNKNOWN;
	for (int i = 0; i < MAX_GPUS; i++)
		fake.device[i].index = i;
	if (!fake.ready)
		fake.init_time = fake_now();
	fake.ready = true;
	return 0;
}

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static int opens; /* of this process, which are counted */

API int nvmlInit_v2(void)
{
	int rc;

	pthread_mutex_lock(&opening);
	rc = opens ? 0 : first_init();
	opens += !rc;
	pthread_mutex_unlock(&opening);
	return rc;
}

API int nvmlShutdown(void)
{
	pthread_mutex_lock(&opening);
	opens -= opens > 0;
	pthread_mutex_unlock(&opening);
	return 0;
}

/* What pynvml calls first. */
API int nvmlInitWithFlags(unsigned int flags);
API int nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return nvmlInit_v2();
}
