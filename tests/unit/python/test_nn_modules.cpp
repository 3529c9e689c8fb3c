// Stacks of calls of nn.Modules: one number each, also where an address is used again.
#include "profiler/python/nn_modules.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/python/frames.hpp"
#include "tests/catch.hpp"

using namespace memlab::profiler;
using namespace memlab::profiler::python;
using memlab::trace::NnModuleName;
using memlab::trace::NnModuleStackDef;

namespace {

class DefinedStacks final : public StackDefinitions {
  public:
    std::uint32_t string_id(std::string_view text) override {
        strings.emplace_back(text);
        return static_cast<std::uint32_t>(strings.size());
    }
    void define(const memlab::trace::ModuleDef&) override {}
    void define(const memlab::trace::PythonFrameDef&) override {}
    void define(const memlab::trace::StackDef&) override {}
    void define(const NnModuleStackDef& stack) override { stacks.push_back(stack); }
    void define(const NnModuleName& name) override { names.push_back(name); }
    void report_limitation(std::string_view) override { ++limitations; }

    std::vector<std::string> strings;
    std::vector<NnModuleStackDef> stacks;
    std::vector<NnModuleName> names;
    int limitations = 0;
};

/// A type object: its type, and its flags.
struct FakeClass {
    std::array<std::uintptr_t, 32> words{};
    FakeClass(const FakeClass* type, std::uintptr_t flags) {
        words[1] = reinterpret_cast<std::uintptr_t>(type);
        words[21] = flags;
    }
};
const FakeClass class_of_classes(nullptr, std::uintptr_t{1} << 31 | 1U << 14 | 1U << 12);
const FakeClass python_class(&class_of_classes, 1U << 14 | 1U << 12 | 1U << 9);
const FakeClass built_in_class(&class_of_classes, 1U << 14 | 1U << 12);

struct FakeObject {
    std::uintptr_t references = 1;
    const FakeClass* type = &python_class;

    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(this); }
};

std::uint64_t hash_of_calls(const std::vector<std::uintptr_t>& calls) {
    std::uint64_t hash = 0;
    for (const std::uintptr_t call : calls) {
        hash = hash_nn_module(hash, call);
    }
    return hash;
}

}  // namespace

TEST_CASE("a stack of nn.Modules has one number, and those around it their own") {
    DefinedStacks defined;
    NnModules modules(defined);
    const FakeObject model;
    const FakeObject layer;
    const std::vector inner{layer.address(), model.address()};
    CHECK(modules.find(hash_of_calls(inner)) == 0);
    CHECK(modules.intern(inner, hash_of_calls(inner)) == 2);
    CHECK(modules.find(hash_of_calls(inner)) == 2);
    CHECK(defined.stacks == std::vector<NnModuleStackDef>{{1, 0, 1}, {2, 1, 2}});
    const std::vector outer{model.address()};
    CHECK(modules.intern(outer, hash_of_calls(outer)) == 1);
    const std::vector alone{layer.address()};
    CHECK(modules.intern(alone, hash_of_calls(alone)) == 3);
    CHECK(defined.stacks.back() == NnModuleStackDef{3, 0, 2});
    CHECK(modules.intern(inner, hash_of_calls(inner)) == 2);
    CHECK(defined.stacks.size() == 3);
}

TEST_CASE("what is at the address of an nn.Module that ended is another one") {
    DefinedStacks defined;
    NnModules modules(defined);
    const FakeObject object;
    const std::vector calls{object.address()};
    modules.name(object.address(), "encoder", "Encoder");
    CHECK(modules.intern(calls, hash_of_calls(calls)) == 1);
    modules.end(object.address());
    CHECK(modules.find(hash_of_calls(calls)) == 0);
    CHECK(modules.intern(calls, hash_of_calls(calls)) == 2);
    modules.name(object.address(), "", "");
    CHECK(defined.stacks == std::vector<NnModuleStackDef>{{1, 0, 1}, {2, 0, 2}});
    CHECK(defined.names == std::vector<NnModuleName>{{1, 1, 2}, {2, 0, 0}});
    CHECK(defined.strings == std::vector<std::string>{"encoder", "Encoder"});
    modules.end(1);  // of none
    CHECK(modules.find(hash_of_calls(calls)) == 2);
}

TEST_CASE("what is no object of a class made by Python code is no nn.Module") {
    DefinedStacks defined;
    NnModules modules(defined);
    FakeObject cell;
    cell.type = &built_in_class;
    const FakeObject model;
    for (const std::uintptr_t wrong : {cell.address(), std::uintptr_t{0}, std::uintptr_t{24}}) {
        CAPTURE(wrong);
        const std::vector calls{wrong, model.address()};
        CHECK(modules.intern(calls, hash_of_calls(calls)) == std::nullopt);
        CHECK(modules.find(hash_of_calls(calls)) == 0);
    }
}

TEST_CASE("beyond the limit a call counts as that around it") {
    DefinedStacks defined;
    NnModules modules(defined);
    const FakeObject object;
    std::vector<std::uintptr_t> calls;
    // Each depth of recursion is a stack of its own.
    calls.assign(NnModules::max_stacks + 5, object.address());
    CHECK(modules.intern(calls, 1) == NnModules::max_stacks);
    CHECK(defined.stacks.size() == NnModules::max_stacks);
    CHECK(defined.limitations == 1);
    CHECK(modules.intern(std::vector{object.address()}, 2) == 1);
}

namespace {

int told = 0;
NnModules::PendingCall told_what = nullptr;

int add_pending_call(NnModules::PendingCall call, void*) {
    ++told;
    told_what = call;
    return 0;
}
int pending_call(void*) {
    return 0;
}

std::vector<std::uintptr_t> take(NnModules& modules, std::size_t most) {
    std::vector<std::uintptr_t> addresses(most);
    addresses.resize(modules.take_unnamed(addresses));
    return addresses;
}

}  // namespace

TEST_CASE("outermost nn.Modules without a name are told of, each once") {
    DefinedStacks defined;
    NnModules modules(defined);
    const FakeObject model;
    const FakeObject layer;
    const FakeObject named;
    const auto call = [&](const std::vector<std::uintptr_t>& calls) {
        return modules.intern(calls, hash_of_calls(calls));
    };
    call({layer.address()});
    CHECK(take(modules, 8).empty());  // nobody asked

    NnModules::tell_of_unnamed(&add_pending_call, &pending_call);
    told = 0;
    modules.name(named.address(), "encoder", "Encoder");
    call({named.address()});
    CHECK(told == 0);
    call({layer.address(), model.address()});
    CHECK(told == 1);
    CHECK(told_what == &pending_call);
    call({model.address()});
    call({layer.address(), model.address(), model.address()});
    CHECK(told == 1);
    call({layer.address()});
    CHECK(told == 2);
    CHECK(take(modules, 1) == std::vector{model.address()});
    CHECK(take(modules, 8) == std::vector{layer.address()});
    CHECK(take(modules, 8).empty());

    SECTION("what is at its address after its end is told of") {
        modules.end(model.address());
        call({model.address()});
        CHECK(told == 3);
        modules.end(model.address());
        CHECK(take(modules, 8).empty());
    }
    SECTION("no longer") {
        NnModules::tell_of_unnamed(nullptr, nullptr);
        const FakeObject other;
        call({other.address()});
        CHECK(told == 2);
        CHECK(take(modules, 8).empty());
    }
    NnModules::tell_of_unnamed(nullptr, nullptr);
}
