#include <dlfcn.h>
#include <stdlib.h>

/* Preloaded after the sanitizers: reports of libubsan go to files SANITIZER_LOG.pid. Beside libasan, the option log_path
 * of libubsan has no effect, since both define the function that sets it. */
__attribute__((constructor)) static void begin(void)
{
    void *ubsan = dlopen("libubsan.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void (*set_path)(const char *) = ubsan ? (void (*)(const char *))dlsym(ubsan, "__sanitizer_set_report_path") : NULL;
    const char *path = getenv("SANITIZER_LOG");
    if (set_path && path) {
        set_path(path);
    }
}
