// A library of UCX's name and nothing more.
extern "C" __attribute__((visibility("default"))) int ucp_get_version() {
    return 1;
}
