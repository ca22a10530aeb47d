// The files of the chat page as tools/embed_files.py writes them into a source file of the build.
#pragma once

namespace lily::server {

struct WebFile {
  const char* path;  // as it is asked for: "/", "/web/…"
  const char* content_type;
  const unsigned char* data;
  unsigned long size;
};
extern const WebFile kWebFiles[];
extern const unsigned kWebFileCount;

}  // namespace lily::server
