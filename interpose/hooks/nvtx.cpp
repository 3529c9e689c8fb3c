// NVTX v3, the tool side. NVTX loads the library named by NVTX_INJECTION64_PATH and passes it a
// table of its functions, once per instance of the header in the process. Ranges, marks and names
// of memory and threads become annotations, regions of a sub-allocator's heap suballocations;
// colours, categories and payloads are ignored.
//
// A domain's handle is its number, a registered string's handle the interned name: nothing is freed
// or looked up.

#include <cstring>
#include <cwchar>
#include <string_view>

#include "interpose/hooks/hook.hpp"
#include "interpose/hooks/nvtx_memory.hpp"
#include "interpose/hooks/nvtx_payload.hpp"
#include "interpose/memory/suballocations.hpp"
#include "interpose/process/annotations.hpp"

namespace mi = memlab::interpose;
namespace nvtx_memory = memlab::interpose::nvtx_memory;
namespace nvtx_payload = memlab::interpose::nvtx_payload;
using memlab::profiler::AnnotationName;
using memlab::profiler::AnnotationNames;

namespace {

constexpr std::size_t max_input_bytes = AnnotationNames::max_bytes + 1;

/// A wide string converted to UTF-8, truncated; invalid characters become '?'.
class Utf8Text {
  public:
    explicit Utf8Text(const wchar_t* text) {
        while (text != nullptr && *text != 0 && size_ + 4 < sizeof bytes_) {
            add(static_cast<std::uint32_t>(*text++));
        }
    }
    operator std::string_view() const { return {bytes_, size_}; }

  private:
    void add(std::uint32_t c) {
        if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) {
            c = '?';
        }
        if (c < 0x80) {
            put(c);
        } else if (c < 0x800) {
            put(0xc0 | c >> 6);
            put(0x80 | (c & 0x3f));
        } else if (c < 0x10000) {
            put(0xe0 | c >> 12);
            put(0x80 | (c >> 6 & 0x3f));
            put(0x80 | (c & 0x3f));
        } else {
            put(0xf0 | c >> 18);
            put(0x80 | (c >> 12 & 0x3f));
            put(0x80 | (c >> 6 & 0x3f));
            put(0x80 | (c & 0x3f));
        }
    }
    void put(std::uint32_t byte) { bytes_[size_++] = static_cast<char>(byte); }

    char bytes_[max_input_bytes + 8];
    std::size_t size_ = 0;
};

std::uint32_t domain_id(nvtxDomainHandle_t domain) {
    const auto number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(domain));
    return number <= AnnotationNames::nvtx_domain || number >= AnnotationNames::max_domains
               ? AnnotationNames::nvtx_domain
               : number;
}

nvtxDomainHandle_t domain_handle(std::uint32_t domain) {
    return reinterpret_cast<nvtxDomainHandle_t>(static_cast<std::uintptr_t>(domain));
}

const AnnotationName* make_name(std::uint32_t domain, const char* text) {
    return mi::annotation_name(
        domain, text == nullptr ? "" : std::string_view(text, strnlen(text, max_input_bytes)));
}

const AnnotationName* make_name(std::uint32_t domain, const wchar_t* text) {
    return mi::annotation_name(domain, Utf8Text(text));
}

const AnnotationName* make_name(std::uint32_t domain, std::int64_t type,
                                const nvtxMessageValue_t& value) {
    switch (type) {
        case NVTX_MESSAGE_TYPE_ASCII:
            return make_name(domain, value.ascii);
        case NVTX_MESSAGE_TYPE_UNICODE:
            return make_name(domain, value.unicode);
        case NVTX_MESSAGE_TYPE_REGISTERED:
            if (value.registered != nullptr) {
                return reinterpret_cast<const AnnotationName*>(value.registered);
            }
            break;
        default:
            break;
    }
    return make_name(domain, "");
}

const AnnotationName* make_name(std::uint32_t domain, const nvtxEventAttributes_t* attributes) {
    constexpr std::size_t needed =
        offsetof(nvtxEventAttributes_t, message) + sizeof(nvtxMessageValue_t);
    if (attributes == nullptr || attributes->size < needed) {
        return make_name(domain, "");
    }
    return make_name(domain, attributes->messageType, attributes->message);
}

// ---- domains; a text is a string or the attributes of an event

template <class Text>
void domain_mark(nvtxDomainHandle_t domain, const Text* text) {
    mi::add_mark(make_name(domain_id(domain), text));
}
template <class Text>
nvtxRangeId_t domain_range_start(nvtxDomainHandle_t domain, const Text* text) {
    return mi::begin_range(make_name(domain_id(domain), text));
}
void domain_range_end(nvtxDomainHandle_t, nvtxRangeId_t id) {
    mi::end_range(id);
}
// Push and pop return "no tracking", as without a tool: a program must not behave differently under
// this one.
template <class Text>
int domain_push(nvtxDomainHandle_t domain, const Text* text) {
    mi::begin_scope(domain_id(domain), make_name(domain_id(domain), text));
    return NVTX_NO_PUSH_POP_TRACKING;
}
int domain_pop(nvtxDomainHandle_t domain) {
    mi::end_scope(domain_id(domain));
    return NVTX_NO_PUSH_POP_TRACKING;
}
template <class Character>
nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const Character* text) {
    return reinterpret_cast<nvtxStringHandle_t>(
        const_cast<AnnotationName*>(make_name(domain_id(domain), text)));
}
nvtxDomainHandle_t create_domain_a(const char* name) {
    return domain_handle(mi::register_domain(
        name == nullptr ? "" : std::string_view(name, strnlen(name, max_input_bytes))));
}
nvtxDomainHandle_t create_domain_w(const wchar_t* name) {
    return domain_handle(mi::register_domain(Utf8Text(name)));
}
/// Names the resource at a pointer; used if it is recorded memory.
nvtxResourceHandle_t create_resource(nvtxDomainHandle_t domain,
                                     nvtxResourceAttributes_t* attributes) {
    if (attributes != nullptr && attributes->size >= sizeof(nvtxResourceAttributes_t) &&
        attributes->identifierType == NVTX_RESOURCE_TYPE_GENERIC_POINTER) {
        mi::label_memory(
            reinterpret_cast<std::uintptr_t>(attributes->identifier.pValue), true,
            make_name(domain_id(domain), attributes->messageType, attributes->message));
    }
    return nullptr;
}

// ---- functions of NVTX v1: the default domain, which has no handle

template <class Text>
void mark(const Text* text) {
    domain_mark(nullptr, text);
}
template <class Text>
nvtxRangeId_t range_start(const Text* text) {
    return domain_range_start(nullptr, text);
}
void range_end(nvtxRangeId_t id) {
    mi::end_range(id);
}
template <class Text>
int push(const Text* text) {
    return domain_push(nullptr, text);
}
int pop() {
    return domain_pop(nullptr);
}
template <class Character>
void name_thread(std::uint32_t thread, const Character* name) {
    mi::name_thread(thread, make_name(AnnotationNames::nvtx_domain, name));
}

// ---- payloads: what is in them is ignored, a message too. nvtxDomainIsEnabled answers yes, as
// under any tool.

using Attributes = nvtxEventAttributes_t;

void mark_payload(nvtxDomainHandle_t domain, const void*, std::size_t) {
    domain_mark<Attributes>(domain, nullptr);
}
int push_payload(nvtxDomainHandle_t domain, const void*, std::size_t) {
    return domain_push<Attributes>(domain, nullptr);
}
int pop_payload(nvtxDomainHandle_t domain, const void*, std::size_t) {
    return domain_pop(domain);
}
nvtxRangeId_t range_start_payload(nvtxDomainHandle_t domain, const void*, std::size_t) {
    return domain_range_start<Attributes>(domain, nullptr);
}
void range_end_payload(nvtxDomainHandle_t domain, nvtxRangeId_t id, const void*, std::size_t) {
    domain_range_end(domain, id);
}

// ---- memory

/// A heap's handle is its interned name; its lowest bit is set where the heap's regions are not
/// allocations.
constexpr std::uintptr_t no_allocator = 1;

/// The allocator whose regions the heap has; null: none.
const AnnotationName* allocator_of(nvtx_memory::Heap heap) {
    const auto value = reinterpret_cast<std::uintptr_t>(heap);
    return (value & no_allocator) != 0 ? nullptr : reinterpret_cast<const AnnotationName*>(heap);
}

/// Labels the allocation that contains the heap. A heap of a sub-allocator is an allocator of the
/// recording: its regions are what it handed out.
nvtx_memory::Heap register_heap(nvtxDomainHandle_t domain,
                                const nvtx_memory::HeapDescription* heap) {
    if (heap == nullptr || heap->structSize < sizeof(nvtx_memory::HeapDescription) ||
        heap->type != nvtx_memory::virtual_address || heap->typeSpecificDesc == nullptr ||
        heap->typeSpecificDescSize < sizeof(nvtx_memory::VirtualRange)) {
        return nullptr;
    }
    const auto* range = static_cast<const nvtx_memory::VirtualRange*>(heap->typeSpecificDesc);
    const bool named = heap->messageType != NVTX_MESSAGE_UNKNOWN;
    const AnnotationName* const name =
        named ? make_name(domain_id(domain), heap->messageType, heap->message)
              : make_name(domain_id(domain), "heap");
    if (named) {
        mi::label_memory(reinterpret_cast<std::uintptr_t>(range->ptr), false, name);
    }
    const bool allocates = heap->usage == nvtx_memory::heap_is_sub_allocator;
    return reinterpret_cast<nvtx_memory::Heap>(reinterpret_cast<std::uintptr_t>(name) |
                                               (allocates ? 0 : no_allocator));
}

/// Its regions end with the heap, or when it is reset.
void end_heap(nvtxDomainHandle_t, nvtx_memory::Heap heap) {
    if (const AnnotationName* const allocator = allocator_of(heap)) {
        (void)mi::in_session([&](mi::Session& session) {
            mi::record_all_suballocations_freed_by(session, allocator->text);
            return true;
        });
    }
}

/// visit(element, index) for each of a batch; those of a later version are longer.
template <class Element, class Visit>
void for_each_element(const void* elements, std::size_t element_size, std::size_t count,
                      const Visit& visit) {
    if (elements == nullptr || element_size < sizeof(Element)) {
        return;
    }
    const auto* at = static_cast<const char*>(elements);
    for (std::size_t i = 0; i < count; ++i, at += element_size) {
        visit(*reinterpret_cast<const Element*>(at), i);
    }
}

/// Of regions that are virtual memory.
template <class Visit>
void for_each_range(std::uint32_t type, const void* elements, std::size_t element_size,
                    std::size_t count, const Visit& visit) {
    if (type == nvtx_memory::virtual_address) {
        for_each_element<nvtx_memory::VirtualRange>(elements, element_size, count, visit);
    }
}

bool names_region(std::uint32_t type) {
    return type == nvtx_memory::ref_is_pointer || type == nvtx_memory::ref_is_handle;
}

/// A region's handle is its address.
void register_regions(nvtxDomainHandle_t, const nvtx_memory::RegisterBatch* batch) {
    if (batch == nullptr || batch->structSize < sizeof(nvtx_memory::RegisterBatch)) {
        return;
    }
    const AnnotationName* const allocator = allocator_of(batch->heap);
    for_each_range(batch->regionType, batch->regionDescElements, batch->regionDescElementSize,
                   batch->regionCount,
                   [&](const nvtx_memory::VirtualRange& range, std::size_t index) {
                       if (batch->regionHandleElementsOut != nullptr) {
                           batch->regionHandleElementsOut[index] =
                               static_cast<nvtx_memory::Region>(const_cast<void*>(range.ptr));
                       }
                       if (allocator != nullptr) {
                           (void)mi::in_session([&](mi::Session& session) {
                               return mi::record_suballocation_by(
                                   session, allocator->text,
                                   reinterpret_cast<std::uintptr_t>(range.ptr), range.size);
                           });
                       }
                   });
}

void resize_regions(nvtxDomainHandle_t, const nvtx_memory::ResizeBatch* batch) {
    if (batch == nullptr || batch->structSize < sizeof(nvtx_memory::ResizeBatch)) {
        return;
    }
    for_each_range(batch->regionType, batch->regionDescElements, batch->regionDescElementSize,
                   batch->regionDescCount, [](const nvtx_memory::VirtualRange& range, std::size_t) {
                       (void)mi::in_session([&](mi::Session& session) {
                           mi::record_suballocation_resized(
                               session, reinterpret_cast<std::uintptr_t>(range.ptr), range.size);
                           return true;
                       });
                   });
}

void unregister_regions(nvtxDomainHandle_t, const nvtx_memory::UnregisterBatch* batch) {
    if (batch == nullptr || batch->structSize < sizeof(nvtx_memory::UnregisterBatch) ||
        !names_region(batch->refType)) {
        return;
    }
    for_each_element<nvtx_memory::RegionRef>(
        batch->refElements, batch->refElementSize, batch->refCount,
        [](const nvtx_memory::RegionRef& region, std::size_t) {
            (void)mi::in_session([&](mi::Session& session) {
                mi::record_suballocation_resized(
                    session, reinterpret_cast<std::uintptr_t>(region.pointer), 0);
                return true;
            });
        });
}

/// A region that is not an allocation has no name: a name is used only if it begins where an
/// allocation does.
void name_regions(nvtxDomainHandle_t domain, const nvtx_memory::NameBatch* batch) {
    if (batch == nullptr || batch->structSize < sizeof(nvtx_memory::NameBatch)) {
        return;
    }
    for_each_element<nvtx_memory::RegionName>(
        batch->regionElements, batch->regionElementSize, batch->regionCount,
        [domain](const nvtx_memory::RegionName& region, std::size_t) {
            if (names_region(region.regionRefType)) {
                mi::label_memory(reinterpret_cast<std::uintptr_t>(region.region.pointer), true,
                                 make_name(domain_id(domain), region.nameType, region.name));
            }
        });
}

// ---- attaching

/// The function table of one module of the program's NVTX instance.
class Table {
  public:
    Table(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module) {
        if (callbacks.GetModuleFunctionTable(module, &functions_, &size_) == 0) {
            size_ = 0;
        }
    }

    template <class Function>
    void set(unsigned index, Function* function) {
        if (index < size_ && functions_[index] != nullptr) {
            *functions_[index] = reinterpret_cast<NvtxFunctionPointer>(function);
        }
    }

  private:
    NvtxFunctionTable functions_ = nullptr;
    unsigned size_ = 0;
};

void attach_core(const NvtxExportTableCallbacks& callbacks) {
    Table core(callbacks, NVTX_CB_MODULE_CORE);
    core.set(NVTX_CBID_CORE_MarkEx, mark<Attributes>);
    core.set(NVTX_CBID_CORE_MarkA, mark<char>);
    core.set(NVTX_CBID_CORE_MarkW, mark<wchar_t>);
    core.set(NVTX_CBID_CORE_RangeStartEx, range_start<Attributes>);
    core.set(NVTX_CBID_CORE_RangeStartA, range_start<char>);
    core.set(NVTX_CBID_CORE_RangeStartW, range_start<wchar_t>);
    core.set(NVTX_CBID_CORE_RangeEnd, range_end);
    core.set(NVTX_CBID_CORE_RangePushEx, push<Attributes>);
    core.set(NVTX_CBID_CORE_RangePushA, push<char>);
    core.set(NVTX_CBID_CORE_RangePushW, push<wchar_t>);
    core.set(NVTX_CBID_CORE_RangePop, pop);
    core.set(NVTX_CBID_CORE_NameOsThreadA, name_thread<char>);
    core.set(NVTX_CBID_CORE_NameOsThreadW, name_thread<wchar_t>);
}

void attach_domains(const NvtxExportTableCallbacks& callbacks) {
    Table core(callbacks, NVTX_CB_MODULE_CORE2);
    core.set(NVTX_CBID_CORE2_DomainMarkEx, domain_mark<Attributes>);
    core.set(NVTX_CBID_CORE2_DomainRangeStartEx, domain_range_start<Attributes>);
    core.set(NVTX_CBID_CORE2_DomainRangeEnd, domain_range_end);
    core.set(NVTX_CBID_CORE2_DomainRangePushEx, domain_push<Attributes>);
    core.set(NVTX_CBID_CORE2_DomainRangePop, domain_pop);
    core.set(NVTX_CBID_CORE2_DomainResourceCreate, create_resource);
    core.set(NVTX_CBID_CORE2_DomainRegisterStringA, register_string<char>);
    core.set(NVTX_CBID_CORE2_DomainRegisterStringW, register_string<wchar_t>);
    core.set(NVTX_CBID_CORE2_DomainCreateA, create_domain_a);
    core.set(NVTX_CBID_CORE2_DomainCreateW, create_domain_w);
}

}  // namespace

/// Called once by each instance of NVTX in the process. Non-zero: the tool is attached.
MEMLAB_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
    if (!mi::is_preloaded()) {
        return 0;
    }
    const auto* callbacks =
        static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
    if (callbacks == nullptr || callbacks->struct_size < sizeof(NvtxExportTableCallbacks)) {
        return 0;
    }
    attach_core(*callbacks);
    attach_domains(*callbacks);
    const auto* version =
        static_cast<const NvtxExportTableVersionInfo*>(get_export_table(NVTX_ETID_VERSIONINFO));
    if (version != nullptr && version->struct_size >= sizeof(NvtxExportTableVersionInfo) &&
        version->SetInjectionNvtxVersion != nullptr) {
        version->SetInjectionNvtxVersion(NVTX_VERSION);
    }
    return 1;
}

/// The same for NVTX's extensions; those of memory and of payloads are supported. 0: the extension
/// is inactive.
MEMLAB_EXPORT int InitializeInjectionNvtxExtension(nvtx_memory::Module* module) {
    if (module == nullptr || module->segmentsCount == 0 || module->segments == nullptr ||
        !mi::is_preloaded()) {
        return 0;
    }
    const nvtx_memory::Segment& slots = module->segments[0];
    const auto set = [&slots](std::size_t index, auto* function) {
        if (index < slots.slotCount) {
            slots.functionSlots[index] = reinterpret_cast<std::intptr_t>(function);
        }
    };
    if (module->moduleId == nvtx_payload::module_id &&
        module->compatId >= nvtx_payload::first_compat_id &&
        module->compatId <= nvtx_payload::last_compat_id) {
        set(nvtx_payload::mark, mark_payload);
        set(nvtx_payload::range_push, push_payload);
        set(nvtx_payload::range_pop, pop_payload);
        set(nvtx_payload::range_start, range_start_payload);
        set(nvtx_payload::range_end, range_end_payload);
        return 1;
    }
    // Drafts of the memory extension have other functions in the slots, under the same module and
    // version: theirs is segment 0.
    if (module->moduleId != nvtx_memory::module_id || module->compatId != nvtx_memory::compat_id ||
        slots.segmentId != 1) {
        return 0;
    }
    set(nvtx_memory::heap_register, register_heap);
    set(nvtx_memory::heap_unregister, end_heap);
    set(nvtx_memory::heap_reset, end_heap);
    set(nvtx_memory::regions_register, register_regions);
    set(nvtx_memory::regions_resize, resize_regions);
    set(nvtx_memory::regions_unregister, unregister_regions);
    set(nvtx_memory::regions_name, name_regions);
    return 1;
}
