// Linked with plugin_one.cpp, in front of it: a library of the same size as that one's, with
// everything a little farther on.
extern "C" __attribute__((visibility("default"), noipa)) int plugin_before(int number) {
    return number + 1;
}

extern "C" __attribute__((visibility("default"))) const char plugin_data[200] = {1};
