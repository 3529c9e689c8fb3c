// libFuzzer: the control channel, on any bytes at all: as a request, as a reply, and as a document.
// A request that is taken is written and read back the same; a reply is the same in any pieces;
// what is refused is refused in one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/control/protocol.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tools/live/documents.hpp"

namespace {

using namespace memlab::interpose;
using memlab::fuzz::require;

void try_request(std::string_view bytes) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    Request request;
    const std::string problem = parse_request(line, &request);
    require(problem.find('\n') == std::string::npos);
    if (!problem.empty()) {
        return;
    }
    require(request.count <= argument_count(info(request.verb).arguments).most);
    const std::vector<std::string> words(request.arguments().begin(), request.arguments().end());
    const std::string again = request_line(request.verb, words);
    require(again == std::string(line) + '\n');
}

void try_reply(std::string_view bytes) {
    ReplyHead whole;
    const std::size_t taken = whole.take(bytes);
    require(taken <= bytes.size());
    ReplyHead pieces;
    std::size_t at = 0;
    for (std::size_t size = 1; at < bytes.size() && pieces.state() == ReplyHead::State::incomplete;
         size = size % 7 + 1) {
        at += pieces.take(bytes.substr(at, size));
    }
    require(at == taken && pieces.state() == whole.state() && pieces.text() == whole.text());
    require(whole.document_bytes() <= max_reply_bytes ||
            whole.state() != ReplyHead::State::document);
    require(whole.text().size() < max_error_bytes);
}

template <typename Read>
void try_document(const std::string& text, Read read) {
    std::string problem;
    const auto document = read(text, &problem);
    require(document.has_value() == problem.empty());
    require(problem.find('\n') == std::string::npos);
    if (document) {
        const std::string written = to_json(*document);
        const auto again = read(written, &problem);
        require(again.has_value() && to_json(*again) == written);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    try_request(bytes);
    try_reply(bytes);
    const std::string text(bytes);
    try_document(text, memlab::tools::read_status);
    try_document(text, memlab::tools::read_interval);
    try_document(text, memlab::tools::read_action);
    try_document(text, memlab::tools::read_pool);
    return 0;
}
