/* A Vulkan driver that hands everything on to DRIVER until so many dispatches are recorded as AFTER
 * says. What is submitted then goes wrong as FAULT says, and NOTE is read. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);

enum Fault { IS_LOST = 1, HAS_NO_MEMORY, HANGS };
enum { DONE = 0, TIMEOUT = 2, OUT_OF_DEVICE_MEMORY = -2, DEVICE_LOST = -4 };

static atomic_int dispatches, is_faulty;

static Function (*real_of_device)(void *, const char *);
static void (*real_dispatch)(void *, uint32_t, uint32_t, uint32_t);
static int (*real_submit)(void *, uint32_t, const void *, uint64_t);
static int (*real_wait)(void *, const void *, uint64_t);
static int (*real_wait_for_fences)(void *, uint32_t, const uint64_t *, uint32_t, uint64_t);

static void dispatch(void *commands, uint32_t x, uint32_t y, uint32_t z) {
    dispatches++;
    real_dispatch(commands, x, y, z);
}

static int submit(void *queue, uint32_t count, const void *infos, uint64_t fence) {
    if (dispatches < AFTER)
        return real_submit(queue, count, infos, fence);
    is_faulty = 1;
    char byte;
    int note = open(NOTE, O_RDONLY);
    if (read(note, &byte, 1) != 1)
        abort();
    close(note);
    /* Who waits for it is told, except that it has no memory to begin with. */
    return FAULT == HAS_NO_MEMORY ? OUT_OF_DEVICE_MEMORY : DONE;
}

static int fault(void) {
    return FAULT == HANGS ? TIMEOUT : DEVICE_LOST;
}

static int wait(void *device, const void *info, uint64_t timeout) {
    return is_faulty ? fault() : real_wait(device, info, timeout);
}

static int wait_for_fences(void *device, uint32_t count, const uint64_t *fences, uint32_t all,
                           uint64_t timeout) {
    return is_faulty ? fault() : real_wait_for_fences(device, count, fences, all, timeout);
}

/* Puts `mine` in the place of what DRIVER has under a name, which it keeps in `real`. */
static Function instead(Function found, void *real, Function mine) {
    if (!found)
        return found;
    memcpy(real, &found, sizeof found);
    return mine;
}

static Function of_device(void *device, const char *name) {
    Function found = real_of_device(device, name);
    if (!strcmp(name, "vkCmdDispatch"))
        return instead(found, &real_dispatch, (Function)dispatch);
    if (!strcmp(name, "vkQueueSubmit"))
        return instead(found, &real_submit, (Function)submit);
    if (!strncmp(name, "vkWaitSemaphores", 16))
        return instead(found, &real_wait, (Function)wait);
    if (!strcmp(name, "vkWaitForFences"))
        return instead(found, &real_wait_for_fences, (Function)wait_for_fences);
    return found;
}

static Function of_driver(const char *name) {
    return (Function)dlsym(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL), name);
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    Function found =
        ((Function(*)(void *, const char *))of_driver("vk_icdGetInstanceProcAddr"))(instance, name);
    if (!strcmp(name, "vkGetDeviceProcAddr"))
        return instead(found, &real_of_device, (Function)of_device);
    return found;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    return ((int (*)(uint32_t *))of_driver("vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}
