// The symbolizer on this program: its functions, inlined ones, a stale build id, and files that are
// not binaries.
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "report/symbols/symbolizer.hpp"
#include "report/text/names.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

std::string self_path() {
    std::array<char, PATH_MAX> path{};
    return realpath("/proc/self/exe", path.data()) == nullptr ? std::string() : path.data();
}

std::uint64_t self_bias() {
    std::uint64_t bias = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* out) {
            *static_cast<std::uint64_t*>(out) = info->dlpi_addr;
            return 1;  // the first one is the program itself
        },
        &bias);
    return bias;
}

std::string self_build_id() {
    std::string id;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* out) {
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const ElfW(Phdr)& header = info->dlpi_phdr[i];
                if (header.p_type != PT_NOTE) {
                    continue;
                }
                const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
                const char* end = at + header.p_memsz;
                while (at + sizeof(ElfW(Nhdr)) <= end) {
                    ElfW(Nhdr) note;
                    std::memcpy(&note, at, sizeof note);
                    const char* name = at + sizeof note;
                    const char* description = name + ((note.n_namesz + 3) & ~3U);
                    if (note.n_type == 3 && note.n_namesz == 4 &&
                        std::memcmp(name, "GNU", 4) == 0) {
                        for (unsigned k = 0; k < note.n_descsz; ++k) {
                            std::array<char, 3> hex{};
                            std::snprintf(hex.data(), hex.size(), "%02x",
                                          static_cast<unsigned char>(description[k]));
                            *static_cast<std::string*>(out) += hex.data();
                        }
                    }
                    at = description + ((note.n_descsz + 3) & ~3U);
                }
            }
            return 1;
        },
        &id);
    return id;
}

/// Its own return address: the line of the call is in the caller.
[[gnu::noinline]] std::uint64_t where_called() {
    return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
}

constexpr int line_of_call = __LINE__ + 3;
struct Trainer {
    [[gnu::noinline]] static std::uint64_t step(int) {
        const volatile std::uint64_t address = where_called();
        return address;
    }
};

constexpr int line_in_inlined = __LINE__ + 2;
[[gnu::always_inline]] inline std::uint64_t allocate_buffer() {
    const volatile std::uint64_t address = where_called();
    return address;
}
constexpr int line_of_inlining = __LINE__ + 2;
[[gnu::noinline]] std::uint64_t outer() {
    const volatile std::uint64_t address = allocate_buffer();
    return address;
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TEST_CASE("a return address gives the line of its call") {
    REQUIRE_FALSE(self_build_id().empty());
    Symbolizer symbolizer;
    const auto& resolved =
        symbolizer.resolve(self_path(), self_build_id(), Trainer::step(1) - self_bias());
    CHECK(resolved.problem.empty());
    REQUIRE(resolved.frames.size() == 1);
    CHECK(short_function_name(resolved.frames[0].function) ==
          "(anonymous namespace)::Trainer::step");
    CHECK(ends_with(resolved.frames[0].file, "tests/unit/report/test_symbolizer.cpp"));
    CHECK(resolved.frames[0].line == line_of_call);
    CHECK_FALSE(resolved.frames[0].inlined);
}

TEST_CASE("an inlined function is a frame of its own, with its caller's line after it") {
    Symbolizer symbolizer;
    const auto& resolved = symbolizer.resolve(self_path(), self_build_id(), outer() - self_bias());
    REQUIRE(resolved.frames.size() == 2);
    CHECK(short_function_name(resolved.frames[0].function) ==
          "(anonymous namespace)::allocate_buffer");
    CHECK(resolved.frames[0].inlined);
    CHECK(resolved.frames[0].line == line_in_inlined);
    CHECK(short_function_name(resolved.frames[1].function) == "(anonymous namespace)::outer");
    CHECK_FALSE(resolved.frames[1].inlined);
    CHECK(resolved.frames[1].line == line_of_inlining);
    CHECK(ends_with(resolved.frames[1].file, "test_symbolizer.cpp"));
}

TEST_CASE("another build id gives no names at all") {
    Symbolizer symbolizer;
    const auto& resolved =
        symbolizer.resolve(self_path(), "00112233", Trainer::step(1) - self_bias());
    CHECK(resolved.frames.empty());
    CHECK(resolved.problem == "binary changed");
}

TEST_CASE("a module without a build id is taken as it is") {
    Symbolizer symbolizer;
    CHECK(symbolizer.resolve(self_path(), "", Trainer::step(1) - self_bias()).frames.size() == 1);
}

TEST_CASE("a library without debug information gives its function") {
    Dl_info info{};
    void* exported = dlsym(RTLD_DEFAULT, "malloc_usable_size");
    if (exported == nullptr || dladdr(exported, &info) == 0 ||
        std::strstr(info.dli_fname, "libc.so") == nullptr) {
        WARN("libc's malloc is replaced here; nothing to look up");
        return;
    }
    Symbolizer symbolizer;
    const auto offset = static_cast<std::uint64_t>(static_cast<char*>(exported) -
                                                   static_cast<char*>(info.dli_fbase));
    const auto& resolved = symbolizer.resolve(info.dli_fname, "", offset + 1);
    REQUIRE_FALSE(resolved.frames.empty());
    // libc has the same function under an internal name too.
    CHECK(ends_with(resolved.frames.back().function, "malloc_usable_size"));
}

TEST_CASE("files that are no binaries, and addresses that lie nowhere") {
    Symbolizer symbolizer;
    CHECK(symbolizer.resolve("/nowhere/at/all", "ab", 1).problem == "file not found");
    CHECK(symbolizer.resolve("", "", 1).problem == "file not found");
    CHECK(symbolizer.resolve("/dev/zero", "", 1).problem == "not a regular file");
    CHECK(symbolizer.resolve("/", "", 1).problem == "not a regular file");
    CHECK(symbolizer.resolve("/etc/passwd", "", 1).problem == "not readable as ELF");
    for (const std::uint64_t address :
         {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
        const auto& resolved = symbolizer.resolve(self_path(), self_build_id(), address);
        CAPTURE(address, resolved.frames.empty() ? "" : resolved.frames[0].function);
        CHECK(resolved.frames.empty());
        CHECK(resolved.problem == "no symbols");
    }
}

TEST_CASE("symbolizing never goes over the network") {
    setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9/", 1);
    const Symbolizer symbolizer;
    CHECK(getenv("DEBUGINFOD_URLS") == nullptr);
}

TEST_CASE("function names without what a table has no room for") {
    CHECK(short_function_name("main") == "main");
    CHECK(short_function_name(
              "torch::autograd::generated::MulBackward0::apply(std::vector<int>&&)") ==
          "MulBackward0");
    CHECK(short_function_name("torch::autograd::generated::MulBackward0_apply_functional(int)") ==
          "torch::autograd::generated::MulBackward0_apply_functional");
    CHECK(short_function_name("torch::autograd::generated::apply") ==
          "torch::autograd::generated::apply");
    CHECK(short_function_name("train(int, float)") == "train");
    CHECK(short_function_name("void train<float>(int)") == "train<float>");
    CHECK(short_function_name("Step<float (*)(int)>::run(int) [clone .part.0]") ==
          "Step<float (*)(int)>::run");
    CHECK(short_function_name("std::vector<int, std::allocator<int> >::resize(unsigned long)") ==
          "std::vector<int, std::allocator<int> >::resize");
    CHECK(short_function_name("(anonymous namespace)::load(char const*)") ==
          "(anonymous namespace)::load");
    CHECK(short_function_name("int (anonymous namespace)::load(char const*)") ==
          "(anonymous namespace)::load");
    CHECK(short_function_name("operator new(unsigned long)") == "operator new");
    CHECK(short_function_name("Functor::operator()(int) const") == "Functor::operator()");
    CHECK(short_function_name("bool operator<(A const&, A const&)") == "operator<");
    CHECK(short_function_name("main::{lambda(int)#1}::operator()(int) const") ==
          "main::{lambda(int)#1}::operator()");
    CHECK(short_function_name("memcpy@@GLIBC_2.14") == "memcpy");
    CHECK(short_function_name("helper.constprop.0") == "helper");
    CHECK(short_function_name("").empty());
}

TEST_CASE("return types and what is local to functions are told from the name") {
    const auto is = [](const char* declaration, const char* name) {
        CAPTURE(declaration);
        CHECK(short_function_name(declaration) == name);
    };
    is("decltype (::new ((void*)(0)) Layer((declval<unsigned long&>)())) "
       "std::construct_at<Layer, unsigned long&>(Layer*, unsigned long&)",
       "std::construct_at<Layer, unsigned long&>");
    is("decltype ({parm#1}+(1)) names::plus_one<int>(int)", "names::plus_one<int>");
    is("decltype (*{parm#1}) deref<int*>(int*)", "deref<int*>");
    is("decltype(auto) forward_it<int>(int&&)", "forward_it<int>");
    is("auto make<int>(int)", "make<int>");
    is("void (*pick<int>(int))(double)", "pick<int>");
    is("int (*(*twice<int>(int))(char))(double)", "twice<int>");
    is("int (&table<int>(int))[3]", "table<int>");
    is("int (A::*member<int>())(char) const", "member<int>");
    is("unsigned long const& ns::A<int>::get<3>() const", "ns::A<int>::get<3>");
    is("std::enable_if<((sizeof (int))<(8)), int>::type small<int>(int)", "small<int>");
    is("std::enable_if<((sizeof (int)>(8))), int>::type large<int>(int)", "large<int>");
    is("std::basic_ostream<char>& std::operator<< <char>(std::basic_ostream<char>&, char)",
       "std::operator<< <char>");
    is("A::operator->() const", "A::operator->");
    is("A::operator->*(int)", "A::operator->*");
    is("bool operator< <int>(A<int> const&, A<int> const&)", "operator< <int>");
    is("operator<=>(A const&, A const&)", "operator<=>");
    is("bool B<1>::operator>(B<1> const&) const", "B<1>::operator>");
    is("void F::operator()<int>(int) const", "F::operator()<int>");
    is("A::operator int() const", "A::operator int");
    is("A::operator std::vector<int, std::allocator<int> >() const",
       "A::operator std::vector<int, std::allocator<int> >");
    is("A::operator unsigned long&()", "A::operator unsigned long&");
    is("A::operator void (*)(int)() const", "A::operator void (*)(int)");
    is("operator new[](unsigned long)", "operator new[]");
    is("operator\"\" _kb(unsigned long long)", "operator\"\" _kb");
    is("my_operator(int)", "my_operator");
    is("operators<(1)>(int)", "operators<(1)>");
    is("fill(int)::Local::run(float)", "fill::Local::run");
    is("A::run(int) const::{lambda(auto:1)#1}::operator()<int>(int) const",
       "A::run::{lambda(auto:1)#1}::operator()<int>");
    is("void each<each(int)::{lambda(int)#1}>(int, each(int)::{lambda(int)#1})",
       "each<each(int)::{lambda(int)#1}>");
    is("main::'lambda'(int)::operator()(int) const", "main::'lambda'::operator()");
    is("main::$_0::operator()() const", "main::$_0::operator()");
    is("name[abi:cxx11](int)", "name[abi:cxx11]");
    is("std::__cxx11::basic_string<char> text[abi:v2]<int>(int)", "text[abi:v2]<int>");
    is("non-virtual thunk to A::f(int)", "A::f");
    is("(anonymous namespace)::A::~A()", "(anonymous namespace)::A::~A");
    is("void A<(Color)1>::paint<(A<(Color)1>::B)2>()", "A<(Color)1>::paint<(A<(Color)1>::B)2>");
    is("main.(*Trainer).Step", "main.(*Trainer).Step");
    // No declarations; whatever they are, they stay.
    for (const char* text :
         {"(", ")", "()", "((", "a(", "(*", "operator", "<", ">(", "(*)(", " "}) {
        CHECK_FALSE(short_function_name(text).empty());
    }
    std::string deep(200'000, '<');
    for (const char c : {'<', '(', '{', '['}) {
        std::fill(deep.begin(), deep.end(), c);
        CHECK_FALSE(short_function_name(deep + "()").empty());
        CHECK_FALSE(collapse_templates(deep + "()", true).empty());
    }
}

TEST_CASE("template arguments are folded, and nothing that only looks like them") {
    const auto is = [](const char* name, const char* folded) {
        CHECK(collapse_templates(name, true) == folded);
    };
    is("run<std::vector<int> >::step", "run<...>::step");
    is("std::operator<< <char>", "std::operator<< <...>");
    is("A<int>::operator<", "A<...>::operator<");
    is("A<int>::operator->", "A<...>::operator->");
    is("A<int>::operator()<float>", "A<...>::operator()<...>");
    is("small<((sizeof (int))<(8))>", "small<...>");
    is("f[abi:cxx11]<int>", "f[abi:cxx11]<...>");
    is("each<int>::{lambda(std::vector<int>)#1}::operator()",
       "each<...>::{lambda(std::vector<int>)#1}::operator()");
    for (const char* name :
         {"<module>", "<lambda>", "A.s.<locals>.inner.<locals>.<lambda>", "gen.<locals>.<listcomp>",
          "<genexpr>", "operator>>", "half<open", "a>b"}) {
        is(name, name);
    }
}
