/* A libcuda.so.1 without a GPU, for tests of the program: the device's memory is this process's, and its one kernel is
 * known by heart. Each call is noted as a line of the file that STUB_CALLS names. STUB_FAILS is a function that returns
 * 719, STUB_WRONG one whose result is wrong in one word, STUB_DEVICES how many devices there are.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int is(const char *name, const char *function) { return strcmp(setting(name), function) == 0; }

static int called(const char *function) {
    FILE *calls = fopen(setting("STUB_CALLS"), "a");
    if (calls) {
        fprintf(calls, "%s\n", function);
        fclose(calls);
    }
    return is("STUB_FAILS", function) ? 719 : 0;
}

#define CALL(function) do { int code = called(function); if (code) return code; } while (0)

int cuGetErrorName(int code, const char **text) {
    *text = code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : NULL;
    return code == 719 ? 0 : 1;
}

int cuInit(unsigned flags) { CALL("cuInit"); return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { CALL("cuDriverGetVersion"); *version = 13000; return 0; }
int cuDeviceGetCount(int *count) {
    CALL("cuDeviceGetCount");
    *count = *setting("STUB_DEVICES") ? atoi(setting("STUB_DEVICES")) : 1;
    return 0;
}
int cuDeviceGet(int *device, int ordinal) { CALL("cuDeviceGet"); *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
    CALL("cuDeviceGetName");
    return device == 0 && snprintf(name, size, "Stub GPU") > 0 ? 0 : 1;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    CALL("cuDeviceGetUuid");
    for (int index = 0; index < 16; index++) uuid[index] = (unsigned char)(index + device);
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    CALL("cuDevicePrimaryCtxRetain");
    *context = (void *)(intptr_t)(device + 1);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { CALL("cuDevicePrimaryCtxRelease_v2"); return device; }
int cuCtxSetCurrent(void *context) { CALL("cuCtxSetCurrent"); return context == (void *)1 ? 0 : 201; }
int cuCtxSynchronize(void) { CALL("cuCtxSynchronize"); return 0; }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    CALL("cuMemAlloc_v2");
    *address = (uint64_t)(uintptr_t)malloc(bytes);
    return 0;
}
int cuMemFree_v2(uint64_t address) { CALL("cuMemFree_v2"); free((void *)(uintptr_t)address); return 0; }
int cuMemsetD32_v2(uint64_t address, unsigned word, size_t count) {
    CALL("cuMemsetD32_v2");
    uint32_t *words = (uint32_t *)(uintptr_t)address;
    for (size_t index = 0; index < count; index++) words[index] = word;
    if (is("STUB_WRONG", "cuMemsetD32_v2")) words[count - 1]++;
    return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    CALL("cuMemcpyHtoD_v2");
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    CALL("cuMemcpyDtoH_v2");
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

int cuModuleLoadData(void **module, const char *text) {
    CALL("cuModuleLoadData");
    if (*setting("STUB_REFUSES") && strstr(text, setting("STUB_REFUSES"))) return 218;
    *module = (void *)2;
    return strstr(text, ".entry triple") ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    CALL("cuModuleGetFunction");
    *function = (void *)3;
    return module == (void *)2 && strcmp(name, "triple") == 0 ? 0 : 500;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    CALL("cuLaunchKernel");
    uint32_t *words = (uint32_t *)(uintptr_t)*(uint64_t *)parameters[0], count = *(uint32_t *)parameters[1];
    if (function != (void *)3 || gy * gz * by * bz != 1 || shared || stream || extra || gx * bx < count) return 1;
    for (uint32_t index = 0; index < count; index++) words[index] = words[index] * 3 + index;
    if (is("STUB_WRONG", "cuLaunchKernel")) words[7] ^= 1;
    return 0;
}
