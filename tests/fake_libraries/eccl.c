// A library with the name and the version function of Enflame's collectives, and nothing else.
int ecclGetVersion(int* version) {
  *version = 22703;
  return 0;
}
