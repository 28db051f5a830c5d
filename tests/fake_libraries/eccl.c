// A library with only the name and the version function of Enflame's collectives.
int ecclGetVersion(int* version) {
  *version = 22703;
  return 0;
}
