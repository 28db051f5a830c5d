// Stands for the XML parser of the UPnP world, whose file is called libixml.so too. It must be refused, not called.
const char* ixmlGetElementById(const char* document, const char* id) {
  (void)id;
  return document;
}
