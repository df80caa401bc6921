/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake libnvidia-ml.so: GPUs whose power is known exactly, with the sensor of a real GPU, limits
 * that persist after the process as in a driver, and faults on demand. Configured by one variable,
 *
 *	JM_FAKE_NVML="gpus=8;wave=square;low=100;high=600;period=2;shift=0.25"
 *
 *	gpus=N name=TEXT arch=9 cc=90 mixed=1 (odd GPUs have another name)
 *	wave=const  power=W
 *	wave=square low=W high=W period=S duty=0.5	high comes first
 *	wave=steps  steps=W*S/W*S/...			repeated for ever
 *	wave=saw    low=W high=W period=S		in 64 steps
 *	wave=spikes low=W high=W period=S duty=0.1	high comes first
 *	wave=random low=W high=W period=S seed=N	400 levels by chance, S/2 long on average;
 *			repeated
 *	phase=S shift=S		GPU i sees the wave phase + i * shift seconds ahead
 *	response=1		the limit reduces the power (default 0: it has no effect)
 *	refresh=0.1 window=0.025 average=1 step=0.1	the sensor, seconds
 *	stamp=query|sensor	time stamps: when asked, or when the sensor changed
 *	mem=0.2			memory power as a share of the GPU's; 0 = not supported
 *	module=1.5		module power as a multiple of the GPU's; 0 = not supported
 *	driver=TEXT		its version
 *	samples=1		the driver keeps samples of its power, one each 20 ms
 *	times=252|270|0		ids of the times of heat and power brake in hardware; where they are
 *				not, power smoothing answers with a number of 32 bits
 *	heat=0.25 brake=0.125	shares of the time in which these held clocks back
 *	activity=1		GPM is supported; nvlink=MIB: received per second, half of it is
 *				sent
 *	min=200 max=700 default=700	limits, W
 *	nosupport=83,186	fields that answer "not supported"
 *	lacks=0:186		GPU 0 answers so to field 186
 *	lost=1@2.5		GPU 1 is lost 2.5 s after init (in each process)
 *	lostfield=1		of a lost GPU each field says so, not the call
 *	fails=1@2.5		GPU 1's fields fail for 0.5 s from then on
 *	freeze=1@2.5 thaw=1@4	GPU 1's counter stands still from 2.5 s after init on, and until 4
 *				s; what was used meanwhile is not counted
 *	jump=1@2.5 jumpj=1e6	GPU 1's counter jumps by so many joules
 *	reset=1@2.5		GPU 1's counter begins again at 0
 *	ahead=S aheadat=S	the clock of the stamps, from some time after init on
 *	deny=2 | deny=all	setting a limit is not permitted on GPU 2, on all; deny=users: as by
 *				the real driver, to nobody but root; users=1: that as well
 *	denyfile=FILE		and only while this file is there
 *	nosets=3		after 3 successful sets (of all GPUs) every further one fails
 *	enforce=1:250		GPU 1 takes any limit but enforces 250 W
 *	latency=US setlatency=US	each call, each set, takes that long
 *	lostlimit=1		calls for GPU 1's limit say that it is lost, others do not
 *	setlag=2:1e9 getlag=2:0.5	a set of, a reading of GPU 2's limit takes so many seconds
 *					more
 *	readlag=1:1e9		a call that reads fields of GPU 1 takes so many seconds more
 *	initlag=1e9 uselag=1:1e9	so does nvmlInit; a call for the processes that used GPU 1
 *	lagfile=FILE		and only while this file is there: removed, the driver returns
 *	cost=US energycost=US	each call, each reading of the energy counter, computes for that
 *				long
 *	init=9			nvmlInit returns this
 *	pstate=8		the power state is P8; 32 = unknown
 *	bytes=N bus=BITS cores=N smmax=MHZ memmax=MHZ	the hardware; 0 = not supported
 *	persistence=0		persistence mode is off
 *	clocks=1		clocks can be locked: of the cores 345 MHz to smmax in steps of 15
 *				(smmax is one of them), of the memory 1593 MHz and memmax; deny and
 *				nosets hold for them, too. The clock that is read is 1980 and 2619,
 *				or the highest that is locked
 *	busyfile=FILE		the clock is the lowest (that is locked), unless this file is there
 *	usersfile=FILE mig=0:3	who uses the GPUs: see nvml_fake_use.c
 * and JM_FAKE_NVML_STATE=FILE, which holds the limits (without it they live in the process).
 * Without both, as for joulemarkd, the configuration is the first line of nvml-fake.conf in the
 * library's own folder, and the state nvml-fake.state there, if it is.
 *
 * The truth. t is CLOCK_MONOTONIC in seconds. GPU i draws P_i(t) = level of the wave at (t + phase
 * + i * shift) modulo the period, cut to the enforced limit when response=1, and has used E_i(t) =
 * integral of P_i from 0 to t. With frac(x) = x - floor(x):
 *	power reading (E_i(s) - E_i(s - window)) / window, s = the last n * refresh + p_i * refresh
 *	<= t, average         likewise with the window `average`,
 *	counter E_i(s) at the last s = n * step + c_i * step <= t, rounded down to a millijoule,
 *	                p_i = frac(0.618034 * (i + 1)), c_i = frac(0.754878 * (i + 1)).
 *	(before freeze, jump and reset; jm_fake_joules(i, t) gives E_i(t) to a test).
 *	power-cap time  the seconds in which P_i was above the limit, as if it had held from 0 on,
 *	thermal, hardware thermal and brake time: heat * t, heat * t / 2, brake * t; others 0,
 *	activity mean power between the two samples / the highest limit; of tensor cores half of it,
 *	of
 *			memory a third. Samples less than 0.1 s apart are refused.
 * When the limit was changed the integral is continued piece by piece (the last 256 changes).
 */
#include "nvml_fake.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* As a driver does that computes: processor time, not sleep. */
static void burn_us(long us)
{
	struct timespec ts;
	double end;

	if (us <= 0)
		return;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	end = (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec + 1e-6 * (double)us;
	while ((double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec < end)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
}

static double age(void)
{
	return fake_now() - fake.init_time;
}

static bool is_lost(int gpu)
{
	return fake.lost_at[gpu] > 0 && age() >= fake.lost_at[gpu];
}

/* Every call on a device begins here. */
int fake_enter(const struct nvml_device *d)
{
	if (!fake.ready)
		return 1; /* uninitialised */
	if (!d)
		return JM_NVML_INVALID_ARGUMENT;
	fake_wait_us(fake.latency_us);
	burn_us(fake.cost_us);
	if (is_lost(d->index) && !fake.lost_by_field)
		return JM_NVML_GPU_IS_LOST;
	return JM_NVML_OK;
}

/* For tests: the joules that GPU i has used at t seconds of CLOCK_MONOTONIC, whatever its counter
 * tells. */
API double jm_fake_joules(int gpu, double t);
API double jm_fake_joules(int gpu, double t)
{
	return fake_joules(gpu, t);
}

API const char *nvmlErrorString(int rc)
{
	switch (rc) {
	case JM_NVML_OK:
		return "The operation was successful";
	case JM_NVML_INVALID_ARGUMENT:
		return "Invalid Argument";
	case JM_NVML_NOT_SUPPORTED:
		return "Not Supported";
	case JM_NVML_NO_PERMISSION:
		return "Insufficient Permissions";
	case JM_NVML_NOT_FOUND:
		return "Not Found";
	case JM_NVML_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case JM_NVML_GPU_IS_LOST:
		return "GPU is lost";
	case JM_NVML_VERSION_MISMATCH:
		return "Driver/library version mismatch";
	default:
		return "Unknown Error";
	}
}

API int nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = (unsigned int)fake.gpus;
	return 0;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned int i, jm_nvml_device *d)
{
	if (i >= (unsigned int)fake.gpus)
		return JM_NVML_INVALID_ARGUMENT;
	*d = &fake.device[i];
	return 0;
}

API int nvmlDeviceGetUUID(jm_nvml_device d, char *uuid, unsigned int size)
{
	if (fake_mig_uuid(d, uuid, size))
		return 0;
	ENTER(d);
	snprintf(uuid, size, "GPU-%08x-fa4e-4000-8000-00000000%04x",
		0x10000000u * (unsigned int)(d->index % 16) + (unsigned int)d->index, d->index);
	return 0;
}

API int nvmlDeviceGetName(jm_nvml_device d, char *name, unsigned int size)
{
	ENTER(d);
	snprintf(
		name, size, "%s", fake.mixed && d->index % 2 ? "NVIDIA A100-SXM4-80GB" : fake.name);
	return 0;
}

API int nvmlDeviceGetPciInfo_v3(jm_nvml_device d, struct jm_nvml_pci *pci)
{
	ENTER(d);
	memset(pci, 0, sizeof(*pci));
	snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", 0x1a + d->index);
	return 0;
}

API int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
	snprintf(version, size, "%s", fake.driver);
	return 0;
}

API int nvmlDeviceGetMinorNumber(jm_nvml_device d, unsigned int *minor)
{
	ENTER(d);
	*minor = (unsigned int)d->index;
	return 0;
}

API int nvmlDeviceGetPowerManagementLimitConstraints(
	jm_nvml_device d, unsigned int *min, unsigned int *max)
{
	ENTER(d);
	*min = (unsigned int)(fake.min_w * 1000);
	*max = (unsigned int)(fake.max_w * 1000);
	return 0;
}

API int nvmlDeviceGetPowerManagementDefaultLimit(jm_nvml_device d, unsigned int *mw)
{
	ENTER(d);
	*mw = (unsigned int)(fake.default_w * 1000);
	return 0;
}

API int nvmlDeviceGetPowerManagementLimit(jm_nvml_device d, unsigned int *mw)
{
	ENTER(d);
	fake_lag(fake.get_lag[d->index]);
	if (fake.lost_limit[d->index] != 0)
		return JM_NVML_GPU_IS_LOST;
	*mw = fake.state->gpu[d->index].requested_mw;
	return 0;
}

API int nvmlDeviceGetEnforcedPowerLimit(jm_nvml_device d, unsigned int *mw)
{
	ENTER(d);
	*mw = (unsigned int)(fake_enforced_w(d->index) * 1000 + 0.5);
	return 0;
}

API int nvmlDeviceSetPowerManagementLimit(jm_nvml_device d, unsigned int mw)
{
	int rc = 0;

	ENTER(d);
	fake_wait_us(fake.set_latency_us);
	fake_lag(fake.set_lag[d->index]);
	if (fake.lost_limit[d->index] != 0)
		return JM_NVML_GPU_IS_LOST;
	if (fake_is_denied(d->index))
		return JM_NVML_NO_PERMISSION;
	if (mw < fake.min_w * 1000 || mw > fake.max_w * 1000)
		return JM_NVML_INVALID_ARGUMENT;
	fake_lock();
	if (fake.no_sets >= 0 && fake.state->sets >= fake.no_sets) {
		rc = JM_NVML_UNKNOWN;
	} else {
		fake.state->gpu[d->index].requested_mw = mw;
		fake.state->gpu[d->index].sets++;
		fake.state->sets++;
		fake_add_piece(d->index, fake_now());
	}
	fake_unlock();
	return rc;
}

API int nvmlDeviceGetPowerUsage(jm_nvml_device d, unsigned int *mw)
{
	bool averages = fake.arch >= JM_NVML_AMPERE && fake.cc != 80;
	double tick;

	ENTER(d);
	tick = fake_last_tick(fake_now(), fake.refresh, fake_frac(0.618034 * (d->index + 1)));
	*mw = (unsigned int)(1000 * fake_mean_watts(
					    d->index, tick, averages ? fake.average : fake.window));
	return 0;
}

API int nvmlDeviceGetClockInfo(jm_nvml_device d, int type, unsigned int *mhz)
{
	ENTER(d);
	*mhz = fake_clock(d->index, type == JM_NVML_CLOCK_MEMORY);
	return 0;
}

API int nvmlDeviceGetTemperature(jm_nvml_device d, int sensor, unsigned int *celsius)
{
	ENTER(d);
	*celsius = 40 + (unsigned int)(d->index + sensor);
	return 0;
}

API int nvmlDeviceGetUtilizationRates(jm_nvml_device d, struct jm_nvml_utilisation *u)
{
	ENTER(d);
	u->gpu = 98;
	u->memory = 50;
	return 0;
}

API int nvmlDeviceGetPerformanceState(jm_nvml_device d, unsigned int *state)
{
	ENTER(d);
	*state = fake.power_state;
	return 0;
}

/* The rest is not in the variant of an old driver. */
#ifndef OLD_DRIVER

static int give_u32(unsigned int value, unsigned int *ret)
{
	*ret = value;
	return value ? JM_NVML_OK : JM_NVML_NOT_SUPPORTED;
}

API int nvmlDeviceGetMaxClockInfo(jm_nvml_device d, int type, unsigned int *mhz)
{
	ENTER(d);
	return give_u32(type == JM_NVML_CLOCK_MEMORY ? fake.memory_mhz : fake.sm_mhz, mhz);
}

API int nvmlDeviceGetNumGpuCores(jm_nvml_device d, unsigned int *n)
{
	ENTER(d);
	return give_u32(fake.cores, n);
}

API int nvmlDeviceGetMemoryBusWidth(jm_nvml_device d, unsigned int *bits)
{
	ENTER(d);
	return give_u32(fake.bus_bits, bits);
}

API int nvmlDeviceGetMemoryInfo(jm_nvml_device d, struct jm_nvml_memory *memory)
{
	ENTER(d);
	*memory = (struct jm_nvml_memory){.total = (unsigned long long)fake.memory_bytes,
		.available = (unsigned long long)(fake.memory_bytes - fake.memory_used),
		.used = (unsigned long long)fake.memory_used};
	return fake.memory_bytes > 0 ? JM_NVML_OK : JM_NVML_NOT_SUPPORTED;
}

API int nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
	snprintf(version, size, "13.580.00.fake");
	return 0;
}

API int nvmlDeviceGetArchitecture(jm_nvml_device d, unsigned int *arch)
{
	ENTER(d);
	*arch = (unsigned int)fake.arch;
	return 0;
}

API int nvmlDeviceGetCudaComputeCapability(jm_nvml_device d, int *major, int *minor)
{
	ENTER(d);
	*major = fake.cc / 10;
	*minor = fake.cc % 10;
	return 0;
}

API int nvmlDeviceGetPersistenceMode(jm_nvml_device d, unsigned int *on)
{
	ENTER(d);
	*on = fake.persistence;
	return 0;
}

/* For programs that are compared with joulemark, which never calls it. */
API int nvmlDeviceSetPersistenceMode(jm_nvml_device d, unsigned int on);
API int nvmlDeviceSetPersistenceMode(jm_nvml_device d, unsigned int on)
{
	ENTER(d);
	if (fake_is_denied(d->index))
		return JM_NVML_NO_PERMISSION;
	fake.persistence = on;
	return 0;
}

API int nvmlDeviceGetCurrentClocksEventReasons(jm_nvml_device d, unsigned long long *reasons)
{
	ENTER(d);
	*reasons = fake_watts(d->index, fake_now()) > fake_enforced_w(d->index) ? 4 : 0;
	return 0;
}

API int nvmlDeviceGetTotalEnergyConsumption(jm_nvml_device d, unsigned long long *mj)
{
	ENTER(d);
	burn_us(fake.energy_cost_us);
	*mj = (unsigned long long)(1000 * fake_counted(d->index,
						  fake_last_tick(fake_now(), fake.step,
							  fake_frac(0.754878 * (d->index + 1)))));
	return 0;
}

static double wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static bool supported(unsigned int field)
{
	for (unsigned int i = 0; i < fake.n_nosupport; i++)
		if (fake.nosupport[i] == field)
			return false;
	return true;
}

static void put_u32(struct jm_nvml_value *v, double value)
{
	v->rc = JM_NVML_OK;
	v->type = JM_NVML_U32;
	v->as.u64 = 0;
	v->as.u32 = (unsigned int)(value + 0.5);
}

/* A value of the sensor and when it last changed. */
static double read_sensor(int gpu, struct jm_nvml_value *v, double t)
{
	double tick = fake_last_tick(t, fake.refresh, fake_frac(0.618034 * (gpu + 1)));
	double share = v->scope == JM_NVML_SCOPE_MEMORY	  ? fake.mem
		       : v->scope == JM_NVML_SCOPE_MODULE ? fake.module
							  : 1;
	double window = v->field == JM_NVML_POWER_AVERAGE ? fake.average : fake.window;

	put_u32(v, 1000 * share * fake_mean_watts(gpu, tick, window));
	return tick;
}

static double read_counter(int gpu, struct jm_nvml_value *v, double t)
{
	double tick = fake_last_tick(t, fake.step, fake_frac(0.754878 * (gpu + 1)));

	v->rc = JM_NVML_OK;
	v->type = JM_NVML_U64;
	v->as.u64 = (unsigned long long)(1000 * fake_counted(gpu, tick));
	return tick;
}

static void put_ns(struct jm_nvml_value *v, double seconds)
{
	v->rc = JM_NVML_OK;
	v->type = JM_NVML_U64;
	v->as.u64 = (unsigned long long)(1e9 * seconds);
}

/* How long clocks were held back. false: it is no such field. */
static bool read_time(int gpu, struct jm_nvml_value *v, double t)
{
	if (v->field == JM_NVML_TIME_POWER_CAP)
		put_ns(v, fake_capped_seconds(gpu, t));
	else if (v->field == JM_NVML_TIME_THERMAL)
		put_ns(v, fake.heat * t);
	else if (fake.time_ids && v->field == fake.time_ids)
		put_ns(v, fake.heat * t / 2);
	else if (fake.time_ids && v->field == fake.time_ids + 1)
		put_ns(v, fake.brake * t);
	else if (v->field >= JM_NVML_TIME_SYNC_BOOST && v->field <= JM_NVML_TIME_RELIABILITY)
		put_ns(v, 0);
	else if (v->field >= 251 && v->field <= 271)
		put_u32(v, 7);
	else
		return false;
	return true;
}

/* Fills the value; returns when it last changed. */
static double read_field(int gpu, struct jm_nvml_value *v, double t)
{
	bool part = (v->scope == JM_NVML_SCOPE_MEMORY && fake.mem > 0) ||
		    (v->scope == JM_NVML_SCOPE_MODULE && fake.module > 0);

	v->rc = JM_NVML_NOT_SUPPORTED;
	if (!supported(v->field) || v->field == (unsigned int)fake.lacks[gpu] ||
		(v->scope && !part) || read_time(gpu, v, t))
		return t;
	switch (v->field) {
	case JM_NVML_ENERGY:
		return v->scope ? t : read_counter(gpu, v, t);
	case JM_NVML_POWER_AVERAGE:
	case JM_NVML_POWER_INSTANT:
		return read_sensor(gpu, v, t);
	case JM_NVML_LIMIT_MIN:
		put_u32(v, fake.min_w * 1000);
		return t;
	case JM_NVML_LIMIT_MAX:
		put_u32(v, fake.max_w * 1000);
		return t;
	case JM_NVML_LIMIT_DEFAULT:
		put_u32(v, fake.default_w * 1000);
		return t;
	case JM_NVML_LIMIT_CURRENT:
		put_u32(v, fake_enforced_w(gpu) * 1000);
		return t;
	case JM_NVML_LIMIT_REQUESTED:
		if (fake.lost_limit[gpu] != 0)
			v->rc = JM_NVML_GPU_IS_LOST;
		else
			put_u32(v, fake.state->gpu[gpu].requested_mw);
		return t;
	default:
		return t;
	}
}

/* Wall time of a monotonic time, us. The distance of the clocks is taken once: a stamp stands
 * still. */
static long long stamp_of(double t)
{
	static double distance;

	if (distance == 0)
		distance = wall_now() - fake_now();
	return llround(1e6 * distance) + llround(1e6 * t) +
	       (age() >= fake.ahead_at ? llround(1e6 * fake.ahead) : 0);
}

static bool fails_now(int gpu)
{
	return fake.fails_at[gpu] > 0 && age() >= fake.fails_at[gpu] &&
	       age() < fake.fails_at[gpu] + 0.5;
}

/* As on an H200: one each 20 ms, the newest 119. The value is the power at that time. samples=0:
 * none. */
API int nvmlDeviceGetSamples(jm_nvml_device d, int what, unsigned long long since_us, int *ret_type,
	unsigned int *n, struct jm_nvml_power_sample *rows)
{
	double now = fake_now();
	unsigned int room = *n, used = 0;

	ENTER(d);
	if (!fake.samples || what)
		return JM_NVML_NOT_SUPPORTED;
	for (int k = 118; k >= 0 && used < room; k--) {
		double t = fake_last_tick(now, 0.02, 0) - 0.02 * k;

		if ((unsigned long long)stamp_of(t) <= since_us)
			continue;
		rows[used++] =
			(struct jm_nvml_power_sample){.stamp_us = (unsigned long long)stamp_of(t),
				.milliwatts = (unsigned int)(1e3 * fake_watts(d->index, t))};
	}
	*ret_type = JM_NVML_U32;
	*n = used;
	return used ? 0 : JM_NVML_NOT_FOUND;
}

API int nvmlDeviceGetFieldValues(jm_nvml_device d, int n, struct jm_nvml_value *values)
{
	double t;

	ENTER(d);
	fake_lag(fake.read_lag[d->index]);
	for (int i = 0; i < n; i++)
		if (values[i].field == JM_NVML_ENERGY && !values[i].scope)
			burn_us(fake.energy_cost_us);
	if (fails_now(d->index))
		return JM_NVML_UNKNOWN;
	for (int i = 0; i < n; i++)
		if (values[i].field == JM_NVML_LIMIT_REQUESTED)
			fake_lag(fake.get_lag[d->index]);
	t = fake_now();
	fake_lock();
	for (int i = 0; i < n; i++) {
		double changed = read_field(d->index, &values[i], t);

		if (is_lost(d->index))
			values[i].rc = JM_NVML_GPU_IS_LOST;
		values[i].stamp_us = stamp_of(fake.stamp_sensor ? changed : t);
		values[i].latency_us = fake.latency_us;
	}
	fake_unlock();
	return 0;
}

#endif
