/* sudo COMMAND ARGUMENT...: the command as root, without a question. Set-user-ID root in guests and nowhere else. */
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 2 || setgid(0) || setuid(0) || setenv("PATH", "/usr/sbin:/usr/bin", 1)) return 1;
    execvp(words[1], words + 1);
    return 127;
}
