#include "profiler/python/public_api_check.hpp"

#include <string_view>

#include "profiler/python/frame_interner.hpp"

namespace memlab::profiler::python {
namespace {

/// An owned reference.
class Reference {
  public:
    Reference(const PublicApi& api, void* object) : api_(api), object_(object) {}
    ~Reference() { reset(nullptr); }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;

    void* get() const { return object_; }
    void reset(void* object) {
        if (object_ != nullptr) {
            api_.release(object_);
        }
        object_ = object;
    }

  private:
    const PublicApi& api_;
    void* object_;
};

/// In 3.9 the collector cannot be switched off, and nothing here makes an object that it counts.
class GcDisabled {
  public:
    explicit GcDisabled(const PublicApi& api)
        : api_(api), was_on_(api.disable_gc != nullptr && api.disable_gc() != 0) {}
    ~GcDisabled() {
        if (was_on_) {
            api_.enable_gc();
        }
    }
    GcDisabled(const GcDisabled&) = delete;
    GcDisabled& operator=(const GcDisabled&) = delete;

  private:
    const PublicApi& api_;
    const bool was_on_;
};

/// Whether the code's attribute equals `expected`. True for names that have no UTF-8 form
/// (surrogates), which utf8() replaces.
bool attribute_is(const PublicApi& api, void* code, const char* name, std::string_view expected) {
    const Reference text(api, api.attribute(code, name));
    std::int64_t size = 0;
    const char* utf8 = text.get() != nullptr ? api.utf8(text.get(), &size) : nullptr;
    if (utf8 == nullptr) {
        api.clear_error();
        return true;
    }
    const std::string_view actual(utf8, static_cast<std::size_t>(size));
    return actual == expected ||
           (expected.ends_with("...") && expected.size() < actual.size());  // truncated by utf8()
}

bool is_same(const Interpreter& interpreter, void* frame, const RawFrame& raw) {
    const PublicApi& api = interpreter.api;
    const Reference code(api, api.frame_code(frame));
    if (code.get() != raw.code) {
        return false;
    }
    const SourceLocation location = read_location(interpreter, raw);
    const int line = api.frame_line(frame);
    return (line > 0 ? line : 0) == location.line &&
           attribute_is(api, code.get(), interpreter.layout->minor < 11 ? "co_name" : "co_qualname",
                        location.function) &&
           attribute_is(api, code.get(), "co_filename", location.file);
}

}  // namespace

Comparison compare_with_public_api(const Interpreter& interpreter, const Frames& frames) {
    const PublicApi& api = interpreter.api;
    if (frames.thread_state == nullptr || interpreter.running_state() != frames.thread_state ||
        api.error() != nullptr) {
        return Comparison::not_now;
    }
    const GcDisabled collector(api);
    Reference frame(api, api.thread_frame(frames.thread_state));
    for (std::size_t i = 0; i < frames.frame_count; ++i) {
        if (frame.get() == nullptr || !is_same(interpreter, frame.get(), frames.frames()[i])) {
            return Comparison::different;
        }
        frame.reset(api.frame_back(frame.get()));
    }
    return frames.truncated || frame.get() == nullptr ? Comparison::equal : Comparison::different;
}

}  // namespace memlab::profiler::python
