/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1: it answers from the state file of a mock GPU node, and fails, hangs or
 * crashes as that file says. `greenroom mock-node` puts three definitions in front of this text and compiles it:
 *
 *   NODE_DIRECTORY   the mock node, an absolute path
 *   STATE_FILE       its state file, an absolute path
 *   LIBRARY_VERSION  the driver that this library belongs to
 *
 * The state is read anew at every call, so that what a test writes counts at once and in every process. The GPUs that a
 * process sees, and their indices, are those whose device nodes are there when it calls nvmlInit, as with the real one.
 * The order in which a call is judged (initialised? scripted? driver there? GPU alive?) is that of sim/world/nvml.py.
 *
 * Sources: the symbols and layouts that nvidia-ml-py 13.615 uses; the codes of nvml.h.
 */

#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define DEPTH_MAX 16
#define MINORS 255 /* the 256th is the control node's */
#define FAULTS 64
#define NONE UINT32_MAX
#define XID_EVENT 8ULL
#define NO_INOTIFY_MS 20

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    MEMORY = 20,
    UNKNOWN = 999,
};

/* ---- JSON: the text is checked once as a whole, then looked into; nothing is copied. `at` of an absent value is NULL. */

struct value {
    const char *at, *end;
};

static const struct value ABSENT = {NULL, NULL};

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    if (*at != '"')
        return NULL;
    for (at++; *at != '"'; at++) {
        if ((unsigned char)*at < ' ')
            return NULL;
        if (*at == '\\' && *++at == '\0')
            return NULL;
    }
    return at + 1;
}

/* The end of the value that begins here; NULL when it is none. The text ends with a NUL, which no value contains. */
static const char *skip_value(const char *at, int depth)
{
    if (*at == '"')
        return skip_string(at);
    if (*at == '{' || *at == '[') {
        char is_object = *at == '{', closing = is_object ? '}' : ']';
        if (depth == 0)
            return NULL;
        at = skip_blanks(at + 1);
        if (*at == closing)
            return at + 1;
        for (;;) {
            if (is_object) {
                if ((at = skip_string(at)) == NULL || *(at = skip_blanks(at)) != ':')
                    return NULL;
                at = skip_blanks(at + 1);
            }
            if ((at = skip_value(at, depth - 1)) == NULL)
                return NULL;
            at = skip_blanks(at);
            if (*at == closing)
                return at + 1;
            if (*at != ',')
                return NULL;
            at = skip_blanks(at + 1);
        }
    }
    size_t length = strspn(at, "+-.0123456789Eaeflnrstu"); /* a number, true, false or null */
    return length ? at + length : NULL;
}

static struct value value_at(const char *at)
{
    at = skip_blanks(at);
    return (struct value){at, skip_value(at, DEPTH_MAX)};
}

/* The value behind the first one at or after `at`, or absent at the end of what holds it. */
static const char *next_in(const char *end_of_one)
{
    const char *at = skip_blanks(end_of_one);
    return *at == ',' ? skip_blanks(at + 1) : NULL;
}

static struct value member(struct value object, const char *name)
{
    if (object.at == NULL || *object.at != '{')
        return ABSENT;
    const char *at = skip_blanks(object.at + 1);
    while (at != NULL && *at == '"') {
        const char *key_end = skip_string(at);
        struct value found = value_at(skip_blanks(key_end) + 1);
        if ((size_t)(key_end - at - 2) == strlen(name) && memcmp(at + 1, name, strlen(name)) == 0)
            return found;
        at = next_in(found.end);
    }
    return ABSENT;
}

static struct value element(struct value array, size_t index)
{
    if (array.at == NULL || *array.at != '[')
        return ABSENT;
    const char *at = skip_blanks(array.at + 1);
    if (*at == ']')
        return ABSENT;
    for (; at != NULL; index--) {
        struct value found = value_at(at);
        if (index == 0)
            return found;
        at = next_in(found.end);
    }
    return ABSENT;
}

static size_t length_of(struct value array)
{
    size_t length = 0;
    while (element(array, length).at != NULL)
        length++;
    return length;
}

static unsigned long long number(struct value value, unsigned long long otherwise)
{
    return value.at != NULL && isdigit((unsigned char)*value.at) ? strtoull(value.at, NULL, 10) : otherwise;
}

static int is_word(struct value value, const char *word)
{
    size_t length = strlen(word);
    return value.at != NULL && (size_t)(value.end - value.at) == length + 2 && memcmp(value.at + 1, word, length) == 0;
}

static int is_true(struct value value)
{
    return value.at != NULL && *value.at == 't';
}

static int is_string(struct value value)
{
    return value.at != NULL && *value.at == '"';
}

/* A string's characters; an escaped one stands for itself, which is right for quotes and backslashes. */
static int copy_string(struct value value, char *out, size_t size)
{
    size_t length = 0;
    if (!is_string(value) || out == NULL)
        return INVALID_ARGUMENT;
    for (const char *at = value.at + 1; at < value.end - 1; at++) {
        at += *at == '\\';
        if (length + 1 >= size)
            return INSUFFICIENT_SIZE;
        out[length++] = *at;
    }
    if (size == 0)
        return INSUFFICIENT_SIZE;
    out[length] = '\0';
    return SUCCESS;
}

static int copy_text(const char *text, char *out, size_t size)
{
    if (out == NULL)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

/* ---- What a process has of NVML */

struct device {
    unsigned minor;
};

struct event_set {
    unsigned char is_registered[MINORS];
    size_t heard[MINORS]; /* how many XIDs of a GPU were told, or were there when it was registered */
};

static struct device devices[MINORS]; /* by minor: a handle stays what it is through losses and a new nvmlInit */
static unsigned char visible[MINORS]; /* minors by index */
static unsigned visible_count;
static int is_initialised;
static struct {
    uint64_t mark;
    unsigned long long fired;
} counters[FAULTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all the above */

/* ---- The state file */

struct call {
    char *text;
    struct value state;
    struct value gpu; /* of the device that is asked about */
};

static void leave(struct call *call)
{
    free(call->text);
}

#define CALL struct call call __attribute__((cleanup(leave))) = {NULL, {NULL, NULL}, {NULL, NULL}}

static int load(struct call *call)
{
    struct stat stat;
    int fd = open(STATE_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return DRIVER_NOT_LOADED; /* no node here: in a container that was given the library only */
    free(call->text);
    call->text = NULL;
    if (fstat(fd, &stat) == 0)
        call->text = malloc((size_t)stat.st_size + 1);
    ssize_t length = call->text == NULL ? -1 : read(fd, call->text, (size_t)stat.st_size);
    close(fd);
    if (length < 0)
        return UNKNOWN;
    call->text[length] = '\0';
    call->state = value_at(call->text);
    if (call->state.end == NULL || *call->state.at != '{' || *skip_blanks(call->state.end) != '\0') {
        fprintf(stderr, "mock NVML: %s is not one JSON object\n", STATE_FILE);
        return UNKNOWN;
    }
    return SUCCESS;
}

static struct value gpu_of(struct value state, unsigned minor)
{
    struct value gpus = member(state, "gpus"), gpu;
    for (size_t index = 0; (gpu = element(gpus, index)).at != NULL; index++)
        if (number(member(gpu, "minor"), NONE) == minor)
            return gpu;
    return ABSENT;
}

static int has_node(const char *name)
{
    char path[sizeof NODE_DIRECTORY + 64];
    struct stat stat_of;
    snprintf(path, sizeof path, "%s/dev/%s", NODE_DIRECTORY, name);
    return stat(path, &stat_of) == 0 && S_ISCHR(stat_of.st_mode);
}

/* ---- How a call is judged */

static int has_fired_enough(struct value fault)
{
    uint64_t mark = 14695981039346656037ULL; /* FNV-1a of the fault's own text: the same fault keeps its count */
    for (const char *at = fault.at; at < fault.end; at++)
        mark = (mark ^ (unsigned char)*at) * 1099511628211ULL;
    unsigned long long times_max = number(member(fault, "timesMax"), UINT64_MAX);
    int is_enough = 1;
    pthread_mutex_lock(&lock);
    for (size_t index = 0; index < FAULTS; index++) {
        if (counters[index].fired != 0 && counters[index].mark != mark)
            continue;
        counters[index].mark = mark;
        is_enough = counters[index].fired >= times_max;
        counters[index].fired += !is_enough;
        break;
    }
    pthread_mutex_unlock(&lock);
    return is_enough;
}

static int consider_faults(struct value state, const char *symbol, unsigned minor)
{
    struct value faults = member(state, "faults"), fault;
    for (size_t index = 0; (fault = element(faults, index)).at != NULL; index++) {
        unsigned long long only = number(member(fault, "minor"), NONE);
        if (!is_word(member(fault, "symbol"), symbol) || (only != NONE && only != minor) || has_fired_enough(fault))
            continue;
        struct value what = member(fault, "what");
        while (is_word(what, "hang"))
            pause(); /* also after a signal's handler: the call never returns */
        if (is_word(what, "crash")) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        }
        return (int)number(what, UNKNOWN);
    }
    return SUCCESS;
}

static int require_driver(struct value state)
{
    struct value loaded = member(state, "loadedVersion");
    if (!is_string(loaded) || !has_node("nvidiactl"))
        return DRIVER_NOT_LOADED;
    if (!is_true(member(state, "mayOpenDevices")))
        return UNKNOWN;
    return is_word(loaded, LIBRARY_VERSION) ? SUCCESS : LIB_RM_VERSION_MISMATCH;
}

static int require_living(struct call *call, unsigned minor)
{
    call->gpu = gpu_of(call->state, minor);
    return is_word(member(call->gpu, "health"), "Healthy") ? SUCCESS : GPU_IS_LOST;
}

static int enter(struct call *call, const char *symbol, unsigned minor)
{
    pthread_mutex_lock(&lock);
    int is_ready = is_initialised;
    pthread_mutex_unlock(&lock);
    if (!is_ready)
        return UNINITIALIZED;
    int code = load(call);
    if (code == SUCCESS)
        code = consider_faults(call->state, symbol, minor);
    return code == SUCCESS ? require_driver(call->state) : code;
}

static int is_device(const struct device *device)
{
    return device >= devices && device < devices + MINORS;
}

static int ask(struct call *call, const char *symbol, const struct device *device)
{
    if (!is_device(device))
        return is_initialised ? INVALID_ARGUMENT : UNINITIALIZED;
    int code = enter(call, symbol, device->minor);
    return code == SUCCESS ? require_living(call, device->minor) : code;
}

/* Begin a function that is not about one GPU, or one that is, under its own name. */
#define ENTER(minor)                              \
    CALL;                                         \
    int code = enter(&call, __func__, (minor));   \
    if (code != SUCCESS)                          \
        return code
#define ASK(device)                               \
    CALL;                                         \
    int code = ask(&call, __func__, (device));    \
    if (code != SUCCESS)                          \
        return code

/* ---- Beginning and end */

API int nvmlInitWithFlags(unsigned flags)
{
    CALL;
    char name[32];
    struct value gpu;
    (void)flags;
    int code = load(&call);
    if (code == SUCCESS)
        code = consider_faults(call.state, "nvmlInitWithFlags", NONE);
    if (code == SUCCESS)
        code = require_driver(call.state);
    if (code != SUCCESS)
        return code;
    struct value gpus = member(call.state, "gpus");
    pthread_mutex_lock(&lock);
    visible_count = 0;
    for (unsigned minor = 0; minor < MINORS; minor++)
        devices[minor].minor = minor;
    for (size_t index = 0; (gpu = element(gpus, index)).at != NULL; index++) {
        unsigned long long minor = number(member(gpu, "minor"), NONE);
        snprintf(name, sizeof name, "nvidia%llu", minor);
        if (minor < MINORS && visible_count < MINORS && has_node(name))
            visible[visible_count++] = (unsigned char)minor;
    }
    is_initialised = 1;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API int nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

API int nvmlShutdown(void)
{
    ENTER(NONE);
    pthread_mutex_lock(&lock);
    is_initialised = 0;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case 16: return "GPU requires restart";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case MEMORY: return "Insufficient Memory";
    case 28: return "GPU Not Found";
    default: return "Unknown Error";
    }
}

/* ---- The machine */

API int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    ENTER(NONE);
    return copy_string(member(call.state, "loadedVersion"), version, length);
}

API int nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    ENTER(NONE);
    return copy_text("13." LIBRARY_VERSION, version, length);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER(NONE);
    if (version == NULL)
        return INVALID_ARGUMENT;
    *version = (int)number(member(call.state, "cudaVersion"), 0);
    return SUCCESS;
}

API int nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(NONE);
    if (count == NULL)
        return INVALID_ARGUMENT;
    *count = visible_count;
    return SUCCESS;
}

/* ---- Handles */

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    unsigned minor = index < visible_count ? visible[index] : NONE;
    ENTER(minor);
    if (minor == NONE || device == NULL)
        return INVALID_ARGUMENT;
    *device = &devices[minor];
    return require_living(&call, minor);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    CALL;
    unsigned minor = NONE;
    if (uuid == NULL || device == NULL)
        return INVALID_ARGUMENT;
    if (is_initialised && load(&call) == SUCCESS)
        for (unsigned index = 0; index < visible_count; index++)
            if (is_word(member(gpu_of(call.state, visible[index]), "uuid"), uuid))
                minor = visible[index];
    int code = enter(&call, __func__, minor);
    if (code != SUCCESS)
        return code;
    if (minor == NONE)
        return NOT_FOUND;
    *device = &devices[minor];
    return require_living(&call, minor);
}

struct place {
    unsigned domain, bus, device;
};

static int is_place(const char *text, struct place *place)
{
    return sscanf(text, "%x:%x:%x", &place->domain, &place->bus, &place->device) == 3;
}

static int place_of(struct value gpu, char *text, size_t size, struct place *place)
{
    int code = copy_string(member(gpu, "pciBusId"), text, size);
    return code == SUCCESS && !is_place(text, place) ? UNKNOWN : code;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct device **device)
{
    ENTER(NONE);
    char text[32];
    struct place wanted, found;
    if (bus_id == NULL || device == NULL || !is_place(bus_id, &wanted))
        return INVALID_ARGUMENT;
    for (unsigned index = 0; index < visible_count; index++) {
        struct value gpu = gpu_of(call.state, visible[index]);
        if (place_of(gpu, text, sizeof text, &found) == SUCCESS && memcmp(&wanted, &found, sizeof found) == 0) {
            *device = &devices[visible[index]];
            return require_living(&call, visible[index]);
        }
    }
    return NOT_FOUND;
}

/* ---- What a GPU is */

API int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned length)
{
    ASK(device);
    return copy_string(member(call.gpu, "uuid"), uuid, length);
}

API int nvmlDeviceGetName(struct device *device, char *name, unsigned length)
{
    ASK(device);
    return copy_string(member(call.gpu, "model"), name, length);
}

API int nvmlDeviceGetIndex(struct device *device, unsigned *index)
{
    ASK(device);
    for (*index = 0; *index < visible_count; ++*index)
        if (visible[*index] == device->minor)
            return SUCCESS;
    return INVALID_ARGUMENT;
}

API int nvmlDeviceGetMinorNumber(struct device *device, unsigned *minor)
{
    ASK(device);
    *minor = device->minor;
    return SUCCESS;
}

struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

API int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info)
{
    ASK(device);
    struct place place;
    memset(info, 0, sizeof *info);
    code = place_of(call.gpu, info->bus_id, sizeof info->bus_id, &place);
    if (code != SUCCESS)
        return code;
    info->domain = place.domain;
    info->bus = place.bus;
    info->device = place.device;
    info->pci_device_id = 0x20B010DE; /* an A100's */
    info->pci_subsystem_id = 0x134F10DE;
    snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "%04X:%02X:%02X.0", place.domain & 0xFFFF,
             place.bus & 0xFF, place.device & 0xFF);
    return SUCCESS;
}

static unsigned long long used_bytes(struct value gpu)
{
    unsigned long long sum = 0;
    struct value processes = member(gpu, "processes"), process;
    for (size_t index = 0; (process = element(processes, index)).at != NULL; index++)
        sum += number(member(process, "used_bytes"), 0);
    return sum;
}

struct memory {
    unsigned long long total, free, used;
};

API int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    ASK(device);
    memory->total = number(member(call.gpu, "memory_bytes"), 0);
    memory->used = used_bytes(call.gpu);
    memory->free = memory->used < memory->total ? memory->total - memory->used : 0;
    return SUCCESS;
}

struct utilization {
    unsigned gpu, memory;
};

API int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *rates)
{
    ASK(device);
    rates->gpu = length_of(member(call.gpu, "processes")) ? 100 : 0;
    rates->memory = rates->gpu;
    return SUCCESS;
}

struct process_info {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

API int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process_info *infos)
{
    ASK(device);
    struct value processes = member(call.gpu, "processes");
    unsigned room = infos == NULL ? 0 : *count;
    *count = (unsigned)length_of(processes);
    if (*count > room)
        return INSUFFICIENT_SIZE;
    for (unsigned index = 0; index < *count; index++) {
        struct value process = element(processes, index);
        infos[index].pid = (unsigned)number(member(process, "pid"), 0);
        infos[index].used_bytes = number(member(process, "used_bytes"), 0);
        infos[index].gpu_instance = infos[index].compute_instance = NONE;
    }
    return SUCCESS;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(struct device *device, unsigned *count, struct process_info *infos)
{
    (void)infos;
    ASK(device);
    *count = 0;
    return SUCCESS;
}

API int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process_info *infos)
{
    (void)infos;
    ASK(device);
    *count = 0;
    return SUCCESS;
}

/* ---- MIG: a GPU may be in that mode; instances it has none */

API int nvmlDeviceGetMigMode(struct device *device, unsigned *now, unsigned *pending)
{
    ASK(device);
    *now = *pending = (unsigned)is_true(member(call.gpu, "isInMigMode"));
    return SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count)
{
    ASK(device);
    *count = is_true(member(call.gpu, "isInMigMode")) ? 7 : 0;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **mig)
{
    (void)index;
    (void)mig;
    ASK(device);
    return NOT_FOUND;
}

API int nvmlDeviceIsMigDeviceHandle(struct device *device, unsigned *is_mig)
{
    ASK(device);
    *is_mig = 0;
    return SUCCESS;
}

/* Only asked of instances. They are here since whoever binds symbols lazily dies of a missing one. */
#define OF_INSTANCES(name)                        \
    API int name(void);                           \
    API int name(void)                            \
    {                                             \
        return is_initialised ? NOT_SUPPORTED : UNINITIALIZED; \
    }
OF_INSTANCES(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)
OF_INSTANCES(nvmlDeviceGetGpuInstanceId)
OF_INSTANCES(nvmlDeviceGetComputeInstanceId)
OF_INSTANCES(nvmlDeviceGetAttributes_v2)
OF_INSTANCES(nvmlDeviceGetGpuInstanceById)
OF_INSTANCES(nvmlGpuInstanceGetComputeInstanceById)
OF_INSTANCES(nvmlGpuInstanceGetInfo)
OF_INSTANCES(nvmlComputeInstanceGetInfo_v2)
OF_INSTANCES(nvmlDeviceGetGpuInstanceProfileInfo)
OF_INSTANCES(nvmlGpuInstanceGetComputeInstanceProfileInfo)

/* ---- Events: the XIDs of the state file, each told once to every set that was there before it */

API int nvmlEventSetCreate(struct event_set **set)
{
    ENTER(NONE);
    if (set == NULL)
        return INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    return *set == NULL ? MEMORY : SUCCESS;
}

API int nvmlDeviceGetSupportedEventTypes(struct device *device, unsigned long long *types)
{
    ASK(device);
    *types = XID_EVENT;
    return SUCCESS;
}

API int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, struct event_set *set)
{
    ASK(device);
    if (set == NULL || types & ~XID_EVENT)
        return set == NULL ? INVALID_ARGUMENT : NOT_SUPPORTED;
    if (!set->is_registered[device->minor])
        set->heard[device->minor] = length_of(member(call.gpu, "xids"));
    set->is_registered[device->minor] = 1;
    return SUCCESS;
}

struct event {
    struct device *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static int hear(struct event_set *set, struct value state, struct event *event)
{
    for (unsigned minor = 0; minor < MINORS; minor++) {
        if (!set->is_registered[minor])
            continue;
        struct value xids = member(gpu_of(state, minor), "xids");
        size_t count = length_of(xids);
        if (set->heard[minor] > count)
            set->heard[minor] = count; /* the node was made anew */
        if (set->heard[minor] == count)
            continue;
        *event = (struct event){&devices[minor], XID_EVENT, 0, NONE, NONE};
        event->data = number(element(xids, set->heard[minor]++), 0);
        return 1;
    }
    return 0;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Wait until something in the node's directory has changed, or the time is over. */
static void await_change(int watch, long long left_ms)
{
    char names[4096];
    struct pollfd wait = {watch, POLLIN, 0};
    long long bound_ms = watch < 0 && left_ms > NO_INOTIFY_MS ? NO_INOTIFY_MS : left_ms;
    if (poll(&wait, watch < 0 ? 0 : 1, bound_ms > INT32_MAX ? INT32_MAX : (int)bound_ms) > 0)
        while (read(watch, names, sizeof names) > 0)
            continue;
}

API int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned timeout_ms)
{
    ENTER(NONE);
    if (set == NULL || event == NULL)
        return INVALID_ARGUMENT;
    long long until_ms = now_ms() + timeout_ms, left_ms;
    int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch >= 0)
        inotify_add_watch(watch, NODE_DIRECTORY, IN_MOVED_TO | IN_CLOSE_WRITE);
    /* What is written between this look and the next wait is an event of the watch. */
    while ((code = load(&call)) == SUCCESS) {
        if (hear(set, call.state, event))
            break;
        if ((left_ms = until_ms - now_ms()) <= 0) {
            code = TIMEOUT;
            break;
        }
        await_change(watch, left_ms);
    }
    if (watch >= 0)
        close(watch);
    return code;
}

API int nvmlEventSetFree(struct event_set *set)
{
    ENTER(NONE);
    free(set);
    return SUCCESS;
}
