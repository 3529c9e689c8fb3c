// The table that stands in for _dl_find_object says the same, also while libraries come and go.
#include "profiler/unwind/object_table.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "profiler/unwind/unloads.hpp"
#include "tests/catch.hpp"

namespace unwind = memlab::profiler::unwind;

namespace {

bool is_same(const dl_find_object& a, const dl_find_object& b) {
    return a.dlfo_link_map == b.dlfo_link_map && a.dlfo_eh_frame == b.dlfo_eh_frame;
}

// Every address in an object's segments, in steps of pages, and those around them.
std::vector<std::uintptr_t> interesting_addresses() {
    std::vector<std::uintptr_t> addresses{
        0, 1, 0xffff, 0x10000, ~std::uintptr_t{0}, std::uintptr_t{1} << 55};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            for (std::size_t i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type == PT_LOAD) {
                    const std::uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
                    const std::uintptr_t end = begin + info->dlpi_phdr[i].p_memsz;
                    for (std::uintptr_t at = begin; at < end; at += 4096) {
                        static_cast<std::vector<std::uintptr_t>*>(result)->push_back(at);
                    }
                    static_cast<std::vector<std::uintptr_t>*>(result)->push_back(end - 1);
                }
            }
            return 0;
        },
        &addresses);
    int local = 0;
    addresses.push_back(reinterpret_cast<std::uintptr_t>(&local));
    return addresses;
}

std::size_t count_differences() {
    std::size_t count = 0;
    for (const std::uintptr_t address : interesting_addresses()) {
        dl_find_object real{};
        dl_find_object found{};
        const int expected = _dl_find_object(reinterpret_cast<void*>(address), &real);
        const int result = unwind::find_in_object_table(address, &found);
        if (result != expected || (result == 0 && !is_same(real, found))) {
            ++count;
        }
    }
    return count;
}

void close_hooked(void* library) {
    const unwind::Unloading unloading;
    REQUIRE(dlclose(library) == 0);
}

}  // namespace

TEST_CASE("the table of objects has what the loader has") {
    CHECK(interesting_addresses().size() > 100);
    CHECK(count_differences() == 0);
    void* const plugin = dlopen(MEMLAB_PLUGIN_ONE, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(plugin != nullptr);
    const auto address = reinterpret_cast<std::uintptr_t>(static_cast<link_map*>(plugin)->l_ld);
    CHECK(count_differences() == 0);
    dl_find_object found{};
    CHECK(unwind::find_in_object_table(address, &found) == 0);
    CHECK(found.dlfo_link_map == plugin);
    close_hooked(plugin);
    CHECK(unwind::find_in_object_table(address, &found) == -1);
    CHECK(count_differences() == 0);
}

TEST_CASE("the table of objects is read while libraries are loaded and unloaded") {
    dl_find_object real{};
    const auto here = reinterpret_cast<std::uintptr_t>(&count_differences);
    REQUIRE(_dl_find_object(reinterpret_cast<void*>(here), &real) == 0);
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::atomic<int> missed{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            while (!done) {
                dl_find_object found{};
                if (unwind::find_in_object_table(here, &found) != 0) {
                    ++missed;  // after an unloading, until the table is up to date
                } else if (!is_same(real, found)) {
                    ++wrong;
                }
                // In no object: asks for an update.
                if (unwind::find_in_object_table(0x20000, &found) == 0) {
                    ++wrong;
                }
            }
        });
    }
    for (int i = 0; i < 300; ++i) {
        void* const plugin =
            dlopen(i % 2 == 0 ? MEMLAB_PLUGIN_ONE : MEMLAB_PLUGIN_OTHER, RTLD_NOW | RTLD_LOCAL);
        REQUIRE(plugin != nullptr);
        dl_find_object found{};
        const auto address = reinterpret_cast<std::uintptr_t>(static_cast<link_map*>(plugin)->l_ld);
        int result = -1;
        // Another thread's update may be under way, and that thread not running.
        const auto begin = std::chrono::steady_clock::now();
        while (result != 0 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
            result = unwind::find_in_object_table(address, &found);
            std::this_thread::yield();
        }
        CHECK(result == 0);
        CHECK(found.dlfo_link_map == plugin);
        close_hooked(plugin);
    }
    done = true;
    for (std::thread& reader : readers) {
        reader.join();
    }
    CHECK(wrong == 0);
    INFO(missed << " times not found");
    dl_find_object found{};
    CHECK(unwind::find_in_object_table(here, &found) == 0);
}

namespace {

/// Holds the lock of the loader's list, for which an update waits.
class LoaderLock {
  public:
    explicit LoaderLock(std::chrono::milliseconds time)
        : holder_([this, time] {
              Held held{&locked_, time};
              dl_iterate_phdr(
                  [](dl_phdr_info*, std::size_t, void* data) {
                      *static_cast<Held*>(data)->locked = true;
                      std::this_thread::sleep_for(static_cast<Held*>(data)->time);
                      return 1;
                  },
                  &held);
          }) {
        while (!locked_) {
            std::this_thread::yield();
        }
    }
    void join() { holder_.join(); }

  private:
    struct Held {
        std::atomic<bool>* locked;
        std::chrono::milliseconds time;
    };
    std::atomic<bool> locked_{false};
    std::thread holder_;
};

}  // namespace

TEST_CASE("only the own object is found while an update from before an unloading goes on") {
    dl_find_object found{};
    const auto own = reinterpret_cast<std::uintptr_t>(&count_differences);
    void* const function = dlsym(RTLD_DEFAULT, "getenv");
    const auto here = reinterpret_cast<std::uintptr_t>(function);
    REQUIRE(unwind::find_in_object_table(own, &found) == 0);
    REQUIRE(unwind::find_in_object_table(here, &found) == 0);
    LoaderLock lock{std::chrono::milliseconds(400)};
    std::thread first([] { unwind::object_table_state::update(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(unwind::find_in_object_table(here, &found) == 0);
    unwind::object_table_state::update_after_unload();
    CHECK(unwind::find_in_object_table(here, &found) == -1);
    dl_find_object real{};
    REQUIRE(_dl_find_object(reinterpret_cast<void*>(own), &real) == 0);
    CHECK(unwind::find_in_object_table(own, &found) == 0);
    CHECK(is_same(real, found));
    first.join();
    lock.join();
    CHECK(unwind::find_in_object_table(here, &found) == 0);
}

// A thread of real-time priority that only yields never lets the updating thread get on.
TEST_CASE("a thread that waits for another one's update sleeps, and not for long") {
    constexpr int milliseconds = 400;
    LoaderLock lock{std::chrono::milliseconds(milliseconds)};
    std::thread first([] { unwind::object_table_state::update(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds / 4));
    const auto times_asleep = [] {
        rusage use{};
        getrusage(RUSAGE_THREAD, &use);
        return use.ru_nvcsw;  // a yield is none
    };
    const long before = times_asleep();
    const auto begin = std::chrono::steady_clock::now();
    unwind::object_table_state::update();
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(milliseconds / 2));
    CHECK(times_asleep() - before > 10);
    first.join();
    lock.join();
}
