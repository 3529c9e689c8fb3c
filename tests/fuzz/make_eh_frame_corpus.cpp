// make_eh_frame_corpus DIR: small tables for fuzz_eh_frame to begin with, of the forms that linkers
// write: a header with its search table, a CIE, an FDE that realigns, one of a signal frame.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using Image = std::vector<std::uint8_t>;

void add(Image& image, std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
        image.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    }
}

void add(Image& image, const Image& bytes) {
    image.insert(image.end(), bytes.begin(), bytes.end());
}

// A CIE with "zR" or "zRS", pc-relative 4-byte pointers; an FDE about the 256 bytes at `code`,
// relative to the header; the header before both.
Image tables(const std::string& augmentation, const Image& program, bool sorted, int code) {
    constexpr int header_size = 20;
    Image cie;
    add(cie, 0, 4);
    cie.push_back(1);
    cie.insert(cie.end(), augmentation.begin(), augmentation.end());
    add(cie, {0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1});
    Image frames;
    add(frames, cie.size(), 4);
    add(frames, cie);
    const int fde = static_cast<int>(frames.size());
    add(frames, 13 + program.size(), 4);
    add(frames, static_cast<std::uint64_t>(fde) + 4, 4);
    add(frames, static_cast<std::uint64_t>(std::int64_t{code} - header_size - fde - 8), 4);
    add(frames, 256, 4);
    add(frames, 0, 1);
    add(frames, program);
    add(frames, 0, 4);

    Image image;
    add(image, 0, 2);                                             // the header's place
    add(image, static_cast<std::uint64_t>(code) + 1024 + 40, 2);  // the address looked for
    add(image, {1, 0x1b, 0x03, static_cast<std::uint8_t>(sorted ? 0x3b : 0xff)});
    add(image, header_size - 4, 4);
    add(image, 1, 4);
    add(image, static_cast<std::uint64_t>(std::int64_t{code}), 4);
    add(image, static_cast<std::uint64_t>(header_size + fde), 4);
    add(image, frames);
    return image;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("make_eh_frame_corpus DIR\n", stderr);
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    const std::vector<Image> programs{
        {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x02, 100, 0x0c, 7, 8, 0x0b},
        {0x45, 0x0c, 10, 0, 0x49, 0x10, 6, 2, 0x76, 0, 0x44, 0x0f, 3, 0x76, 0x78, 6},
        {0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22},
        {0x0f, 4, 0x77, 0xa0, 1, 6, 0x10, 16, 3, 0x77, 0xa8, 1, 0x16, 7, 3, 0x77, 0xa0, 1},
        {0x0e, 64, 0x8c, 3, 0x83, 4, 0x09, 6, 13, 0x2e, 16, 0x14, 12, 2, 0x11, 3, 0x7e, 0xc6},
    };
    int number = 0;
    for (const std::string augmentation : {"zR", "zRS"}) {
        for (const Image& program : programs) {
            for (const bool sorted : {true, false}) {
                const Image image = tables(augmentation, program, sorted, -600);
                std::ofstream file(folder / ("tables" + std::to_string(number++)),
                                   std::ios::binary);
                file.write(reinterpret_cast<const char*>(image.data()),
                           static_cast<std::streamsize>(image.size()));
            }
        }
    }
    return 0;
}
