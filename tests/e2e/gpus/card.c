/* A Vulkan driver that hands everything on to DRIVER, and says besides that its device is a card on
 * a PCI bus, the one whose number the file BUS has, and how much of its memory is free: the MiB that
 * the file FREE has. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*Function)(void);

struct Chained {
    uint32_t type;
    struct Chained *next;
};

struct PciBusInfo {
    struct Chained chained;
    uint32_t domain, bus, device, function;
};

struct MemoryBudget {
    struct Chained chained;
    uint64_t budget[16], usage[16];
};

struct Extension {
    char name[256];
    uint32_t version;
};

struct DeviceCreateInfo {
    struct Chained chained;
    uint32_t flags, queue_count;
    const void *queues;
    uint32_t layer_count;
    const char *const *layers;
    uint32_t extension_count;
    const char *const *extensions;
    const void *features;
};

enum { PCI_BUS_INFO = 1000212000, MEMORY_BUDGET = 1000237000, INCOMPLETE = 5 };

/* What it has beside what DRIVER has. */
static const char *const own[] = {"VK_EXT_pci_bus_info", "VK_EXT_memory_budget"};
enum { OWN = sizeof own / sizeof *own };

static void (*real_properties)(void *, struct Chained *);
static void (*real_memory)(void *, struct Chained *);
static int (*real_extensions)(void *, const char *, uint32_t *, struct Extension *);
static int (*real_create)(void *, const struct DeviceCreateInfo *, const void *, void **);

static Function of_driver(const char *name) {
    return (Function)dlsym(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL), name);
}

static int is_own(const char *name) {
    for (int at = 0; at < OWN; at++)
        if (!strcmp(name, own[at]))
            return 1;
    return 0;
}

/* The number that a file has. */
static unsigned long long number(const char *path) {
    unsigned long long found = 0;
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%llu", &found) != 1)
        found = 0;
    if (file)
        fclose(file);
    return found;
}

static void properties(void *device, struct Chained *chain) {
    real_properties(device, chain);
    for (; chain; chain = chain->next)
        if (chain->type == PCI_BUS_INFO) {
            struct PciBusInfo *info = (struct PciBusInfo *)chain;
            info->domain = 0, info->bus = number(BUS), info->device = 0, info->function = 0;
        }
}

static void memory(void *device, struct Chained *chain) {
    real_memory(device, chain);
    for (; chain; chain = chain->next)
        if (chain->type == MEMORY_BUDGET) {
            struct MemoryBudget *info = (struct MemoryBudget *)chain;
            info->usage[0] = 100ull << 20, info->budget[0] = (number(FREE) + 100) << 20;
        }
}

static int extensions(void *device, const char *layer, uint32_t *count, struct Extension *list) {
    if (list && *count < OWN)
        return INCOMPLETE;
    if (list)
        *count -= OWN;
    int result = real_extensions(device, layer, count, list);
    for (int at = 0; list && at < OWN; at++) {
        struct Extension *mine = &list[*count + at];
        memset(mine, 0, sizeof *mine);
        strcpy(mine->name, own[at]);
        mine->version = 1;
    }
    *count += OWN;
    return result;
}

static int create(void *device, const struct DeviceCreateInfo *info, const void *memory, void **made) {
    const char *theirs[256];
    struct DeviceCreateInfo less = *info;
    less.extension_count = 0;
    for (uint32_t at = 0; at < info->extension_count && less.extension_count < 256; at++)
        if (!is_own(info->extensions[at]))
            theirs[less.extension_count++] = info->extensions[at];
    less.extensions = theirs;
    return real_create(device, &less, memory, made);
}

/* Puts `mine` in the place of what DRIVER has under a name, which it keeps in `real`. */
static Function instead(Function found, void *real, Function mine) {
    memcpy(real, &found, sizeof found);
    return mine;
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    Function found =
        ((Function(*)(void *, const char *))of_driver("vk_icdGetInstanceProcAddr"))(instance, name);
    if (found && !strncmp(name, "vkGetPhysicalDeviceProperties2", 30))
        return instead(found, &real_properties, (Function)properties);
    if (found && !strncmp(name, "vkGetPhysicalDeviceMemoryProperties2", 36))
        return instead(found, &real_memory, (Function)memory);
    if (found && !strcmp(name, "vkEnumerateDeviceExtensionProperties"))
        return instead(found, &real_extensions, (Function)extensions);
    if (found && !strcmp(name, "vkCreateDevice"))
        return instead(found, &real_create, (Function)create);
    return found;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    return ((int (*)(uint32_t *))of_driver("vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}
