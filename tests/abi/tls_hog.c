/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: 1 KiB of static thread-local storage, like that of a large framework's libraries. */
char *flw_tls_hog(void);

static _Thread_local char hog[1024] __attribute__((tls_model("initial-exec")));

__attribute__((visibility("default"))) char *flw_tls_hog(void)
{
    return hog;
}
