// On any glibc a library has _dl_find_object: the C library's where that has one (2.35), else
// memlab's own, which gives the same answers.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>

#include "tests/catch.hpp"

namespace {

/// A library of find_object_probe.cpp.
class Probe {
  public:
    explicit Probe(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        REQUIRE(library_ != nullptr);
        find_ = reinterpret_cast<decltype(find_)>(dlsym(library_, "probe_find_object"));
        used_ = reinterpret_cast<decltype(used_)>(dlsym(library_, "probe_used_table"));
        REQUIRE(find_ != nullptr);
        REQUIRE(used_ != nullptr);
    }
    bool used_table() const { return used_() != 0; }
    /// The object that contains the address; null: none.
    const link_map* find(const void* address) const {
        dl_find_object found{};
        return find_(const_cast<void*>(address), &found) == 0 ? found.dlfo_link_map : nullptr;
    }

  private:
    void* library_;
    int (*find_)(void*, dl_find_object*);
    int (*used_)();
};

const link_map* real_object(const void* address) {
    dl_find_object found{};
    return _dl_find_object(const_cast<void*>(address), &found) == 0 ? found.dlfo_link_map : nullptr;
}

void check_answers(const Probe& probe) {
    const int local = 0;
    const auto here = reinterpret_cast<const void*>(&real_object);
    const auto libc = reinterpret_cast<const void*>(&gnu_get_libc_version);
    for (const void* address : {here, libc, static_cast<const void*>(&local)}) {
        CHECK(probe.find(address) == real_object(address));
    }
    CHECK(probe.find(here) != nullptr);
    CHECK(probe.find(&local) == nullptr);
    void* const plugin = dlopen(MEMLAB_PLUGIN_OTHER, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(plugin != nullptr);
    CHECK(probe.find(static_cast<link_map*>(plugin)->l_ld) == plugin);
    dlclose(plugin);
}

}  // namespace

TEST_CASE("the C library's _dl_find_object is used where there is one") {
    const Probe probe(MEMLAB_FIND_OBJECT_PROBE);
    check_answers(probe);
    const bool there = dlsym(RTLD_DEFAULT, "_dl_find_object") != nullptr;
    CHECK(probe.used_table() == !there);
}

TEST_CASE("without one the table of objects stands in for it") {
    const Probe probe(MEMLAB_FIND_OBJECT_PROBE_OLD);
    check_answers(probe);
    CHECK(probe.used_table());
}
