// What PyTorch tells and hands over is believed only while it looks as expected, and what is not
// known is left as it is.
#include "interpose/hooks/pytorch_checks.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

#include "interpose/options/pytorch_doors.hpp"
#include "tests/catch.hpp"

namespace mi = memlab::interpose;

namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

constexpr auto is_memory = [](int gpu, std::uint64_t address, std::uint64_t bytes) {
    return gpu < 2 && address >= 64 * mebibyte && address + bytes <= 128 * mebibyte;
};

mi::BlockReport block(std::int64_t bytes, std::uint64_t allocated) {
    return {0, 64 * mebibyte, bytes, allocated, 20 * mebibyte};
}

// The functions that a PyTorch could have: as the compiler returns a smart pointer, and otherwise.
mi::SharedNode* current = nullptr;
std::shared_ptr<mi::SharedNode> holder;
mi::IntrusiveNode counted{};
const int virtual_table = 0;

std::shared_ptr<mi::SharedNode> returns_shared() {
    return holder;
}

struct Intrusive {
    explicit Intrusive(mi::IntrusiveNode* of) : node(of) {}
    Intrusive(const Intrusive& other) = delete;
    ~Intrusive() {}  // NOLINT: so that it is returned in memory
    mi::IntrusiveNode* node;
};
Intrusive returns_intrusive() {
    ++counted.references;
    return Intrusive(&counted);
}
Intrusive returns_nothing() {
    return Intrusive(nullptr);
}
Intrusive returns_unreadable() {
    return Intrusive(reinterpret_cast<mi::IntrusiveNode*>(std::uintptr_t{0x10000}));
}
mi::SharedNode* returns_raw() {
    return holder.get();
}
struct Large {
    std::shared_ptr<mi::SharedNode> node;
    std::uint64_t more;
};
Large returns_large() {
    return {nullptr, 3};
}

template <class Function>
mi::CurrentNode::Function* as_door(Function* function) {
    return reinterpret_cast<mi::CurrentNode::Function*>(reinterpret_cast<void*>(function));
}

}  // namespace

TEST_CASE("reports of blocks are believed while they are possible") {
    mi::ReportCheck check;
    std::uint64_t allocated = 0;
    int asked = 0;
    const auto memory = [&](int gpu, std::uint64_t address, std::uint64_t bytes) {
        ++asked;
        return is_memory(gpu, address, bytes);
    };
    for (std::uint32_t i = 0; i < 2 * mi::ReportCheck::enough; ++i) {
        const std::int64_t bytes = i % 3 == 2 ? -512 : 512;
        allocated += static_cast<std::uint64_t>(bytes);
        CHECK(check.believes(block(bytes, allocated), memory));
    }
    CHECK(asked == mi::ReportCheck::enough);
    CHECK(check.believes({99, 0, 0, 9, 3}, memory));  // nothing is checked any more
}

TEST_CASE("one impossible report is the last that is believed") {
    const mi::BlockReport impossible[] = {
        {-1, 64 * mebibyte, 512, 512, 2 * mebibyte},
        {64, 64 * mebibyte, 512, 512, 2 * mebibyte},
        {2, 64 * mebibyte, 512, 512, 2 * mebibyte},
        {0, 0, 512, 512, 2 * mebibyte},
        {0, 1024, 512, 512, 2 * mebibyte},
        {0, 127 * mebibyte, 2 * mebibyte, 2 * mebibyte, 2 * mebibyte},
        {0, 64 * mebibyte, 0, 512, 2 * mebibyte},
        {0, 64 * mebibyte, 512, 2 * mebibyte, 512},
        {0, 64 * mebibyte, 1024, 512, 2 * mebibyte},
        {0, 64 * mebibyte, INT64_MIN, 512, 2 * mebibyte},
        {0, 64 * mebibyte, 512, 512, ~std::uint64_t{0}},
    };
    for (const mi::BlockReport& report : impossible) {
        mi::ReportCheck check;
        CHECK(check.believes(block(512, 512), is_memory));
        CHECK_FALSE(check.believes(report, is_memory));
        CHECK_FALSE(check.believes(block(512, 1024), is_memory));
    }
}

TEST_CASE("totals that do not change as the blocks do are not believed for long") {
    mi::ReportCheck check;
    CHECK(check.believes(block(512, 4096), is_memory));  // the first tells no sum
    for (std::uint32_t i = 1; i < mi::ReportCheck::wrong_sums; ++i) {
        CHECK(check.believes(block(512, 4096), is_memory));
    }
    CHECK_FALSE(check.believes(block(512, 4096), is_memory));
}

TEST_CASE("a failure's figures are possible or not") {
    CHECK(mi::ReportCheck::is_possible_failure(0, 512, 3, 3));
    CHECK_FALSE(mi::ReportCheck::is_possible_failure(-1, 512, 3, 3));
    CHECK_FALSE(mi::ReportCheck::is_possible_failure(0, 0, 3, 3));
    CHECK_FALSE(mi::ReportCheck::is_possible_failure(0, -512, 3, 3));
    CHECK_FALSE(mi::ReportCheck::is_possible_failure(0, 512, 4, 3));
    CHECK_FALSE(mi::ReportCheck::is_possible_failure(0, 512, 3, ~std::uint64_t{0}));
}

TEST_CASE("the node that backward evaluates, by a shared pointer") {
    mi::CurrentNode door;
    CHECK(door.get(as_door(returns_shared), mi::NodeLayout::shared) == nullptr);
    CHECK_FALSE(door.refuted());
    holder = std::make_shared<mi::SharedNode>();
    current = holder.get();
    current->virtual_table = &virtual_table;
    current->self = current;
    // The other word of a shared pointer is the address of its count.
    void* words[2];
    static_assert(sizeof words == sizeof holder);
    std::memcpy(static_cast<void*>(words), static_cast<const void*>(&holder), sizeof words);
    current->self_control = words[1];
    for (int i = 0; i < 3; ++i) {
        CHECK(door.get(as_door(returns_shared), mi::NodeLayout::shared) == current);
        CHECK(holder.use_count() == 1);
    }
    CHECK_FALSE(door.refuted());

    SECTION("nothing else") {
        for (auto* const function :
             {as_door(returns_raw), as_door(returns_large), as_door(returns_unreadable)}) {
            mi::CurrentNode other;
            CHECK(other.get(function, mi::NodeLayout::shared) == nullptr);
            CHECK(other.refuted());
            CHECK(other.get(as_door(returns_shared), mi::NodeLayout::shared) == nullptr);
        }
        CHECK(holder.use_count() == 1);
    }
    SECTION("nor to a node of another layout") {
        current->self = nullptr;
        mi::CurrentNode other;
        CHECK(other.get(as_door(returns_shared), mi::NodeLayout::shared) == nullptr);
        CHECK(other.refuted());
    }
    holder.reset();
}

TEST_CASE("the node that backward evaluates, by a pointer that counts in the node") {
    const std::uint64_t weak = std::uint64_t{1} << 32;
    counted.virtual_table = &virtual_table;
    counted.references = weak + 2;
    mi::CurrentNode door;
    CHECK(door.get(as_door(returns_nothing), mi::NodeLayout::intrusive) == nullptr);
    CHECK_FALSE(door.refuted());
    for (int i = 0; i < 3; ++i) {
        CHECK(door.get(as_door(returns_intrusive), mi::NodeLayout::intrusive) == &counted);
        CHECK(counted.references == weak + 2);
    }
    CHECK(door.get(as_door(returns_nothing), mi::NodeLayout::intrusive) == nullptr);

    SECTION("a reference that may be the last but one is left alone") {
        counted.references = weak + 1;
        CHECK(door.get(as_door(returns_intrusive), mi::NodeLayout::intrusive) == nullptr);
        CHECK(counted.references == weak + 2);
        CHECK(door.refuted());
    }
    SECTION("nothing else") {
        holder = std::make_shared<mi::SharedNode>();
        for (auto* const function :
             {as_door(returns_raw), as_door(returns_large), as_door(returns_unreadable)}) {
            mi::CurrentNode other;
            CHECK(other.get(function, mi::NodeLayout::intrusive) == nullptr);
            CHECK(other.refuted());
        }
        counted.references = 7;  // no weak count
        mi::CurrentNode other;
        CHECK(other.get(as_door(returns_intrusive), mi::NodeLayout::intrusive) == nullptr);
        CHECK(counted.references == 8);
        holder.reset();
    }
}

TEST_CASE("what cannot be read is not") {
    CHECK_FALSE(mi::can_be_read(nullptr, 8));
    CHECK_FALSE(mi::can_be_read(reinterpret_cast<const void*>(std::uintptr_t{0x10000}), 8));
    CHECK_FALSE(mi::can_be_read(reinterpret_cast<const char*>(&counted) + 1, 8));
    CHECK(mi::can_be_read(&counted, sizeof counted));
    constexpr std::size_t page = 4096;
    void* const pages =
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    auto* const end = static_cast<char*>(pages) + page;
    REQUIRE(mprotect(end, page, PROT_NONE) == 0);
    CHECK(mi::can_be_read(end - 16, 16));
    CHECK_FALSE(mi::can_be_read(end - 16, 24));
    // A virtual table that no library has.
    auto* const node = static_cast<mi::AutogradNode*>(pages);
    node->virtual_table = pages;
    CHECK_FALSE(mi::looks_like_node(node));
    node->virtual_table = &virtual_table;
    CHECK(mi::looks_like_node(node));
    munmap(pages, 2 * page);
}

TEST_CASE("the version that a PyTorch says it is") {
    CHECK(mi::parse_pytorch_version("__all__ = ['__version__']\n__version__ = '2.11.0+cu130'\n") ==
          "2.11.0");
    CHECK(mi::parse_pytorch_version("__version__ = \"2.15.0a0\"") == "2.15.0a0");
    CHECK(mi::parse_pytorch_version("__version__ = version").empty());
    CHECK(mi::parse_pytorch_version("__version__ = '2.1\x1b[31m'").empty());
    CHECK(mi::parse_pytorch_version("").empty());
    CHECK(mi::pytorch_version_of("/nowhere/lib/libtorch_cpu.so.2.6") == "2.6");
    CHECK(mi::pytorch_version_of("/nowhere/lib/libtorch_cpu.so").empty());
    CHECK(mi::pytorch_version_of("libc10.so.2.14.1") == "2.14.1");
    CHECK(mi::pytorch_not_read("2.15", mi::PytorchFeature::forward_lines, "layout unknown") ==
          "PyTorch 2.15: forward lines not read: layout unknown");
    CHECK(mi::pytorch_not_read("", mi::PytorchFeature::tensors, "x") ==
          "PyTorch: tensors not read: x");
}
