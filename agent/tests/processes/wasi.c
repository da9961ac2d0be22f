/* What a program of the C library does with files, folders, time and chance; ends with the line
 * in which the first thing went otherwise. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s, errno %d", __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

static void files(void) {
    FILE *file = fopen("numbers", "w+");
    EXPECT(file);
    for (int number = 0; number < 100000; number++) EXPECT(fprintf(file, "%06d\n", number) == 7);
    EXPECT(fseek(file, 7 * 54321, SEEK_SET) == 0);
    int found = -1;
    EXPECT(fscanf(file, "%d", &found) == 1 && found == 54321);
    EXPECT(fseek(file, -7, SEEK_END) == 0 && ftell(file) == 7 * 99999);
    fclose(file);
    struct stat known;
    EXPECT(stat("numbers", &known) == 0 && known.st_size == 700000 && S_ISREG(known.st_mode));
    EXPECT(known.st_mtim.tv_sec == 946684800);
    int fd = open("/numbers", O_RDWR | O_APPEND);
    EXPECT(fd >= 0 && pwrite(fd, "x", 1, 3) == 1);
    char letter = 0;
    EXPECT(pread(fd, &letter, 1, 3) == 1 && letter == 'x');
    EXPECT(write(fd, "end", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 700003);
    EXPECT(ftruncate(fd, 10) == 0 && lseek(fd, 0, SEEK_END) == 10);
    EXPECT(unlink("numbers") == 0 && stat("numbers", &known) < 0 && errno == ENOENT);
    EXPECT(fstat(fd, &known) == 0 && known.st_size == 10);
    close(fd);
    EXPECT(open("numbers", O_WRONLY) < 0 && errno == ENOENT);
    EXPECT(read(0, &letter, 1) == 0);
}

static void folders(void) {
    EXPECT(mkdir("deep", 0700) == 0 && mkdir("deep/er", 0700) == 0);
    EXPECT(mkdir("deep", 0700) < 0 && errno == EEXIST);
    /* More names than one call to the host tells of. */
    for (int number = 999; number >= 0; number--) {
        char name[64];
        snprintf(name, sizeof name, "deep/er/a-rather-long-name-%03d", number);
        int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        EXPECT(fd >= 0);
        close(fd);
    }
    DIR *folder = opendir("deep/er");
    EXPECT(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char expected[64], path[96];
        snprintf(expected, sizeof expected, "a-rather-long-name-%03d", count++);
        EXPECT(strcmp(entry->d_name, expected) == 0);
        /* Removed as it is listed. */
        snprintf(path, sizeof path, "deep/er/%s", expected);
        EXPECT(unlink(path) == 0);
    }
    closedir(folder);
    EXPECT(count == 1000);
    EXPECT(rmdir("deep") < 0 && errno == ENOTEMPTY);
    EXPECT(rename("deep/er", "moved") == 0 && rmdir("deep") == 0 && rmdir("moved") == 0);
    EXPECT(symlink("/etc/passwd", "link") < 0 && errno == ENOTSUP);
    EXPECT(open("../../etc/passwd", O_RDONLY) < 0);
    EXPECT(open("/etc/passwd", O_RDONLY) < 0 && errno == ENOENT);
    EXPECT(getenv("PATH") == NULL);
}

static void time_and_chance(void) {
    struct timespec before, after, day = {86400, 0};
    EXPECT(clock_gettime(CLOCK_MONOTONIC, &before) == 0);
    EXPECT(nanosleep(&day, NULL) == 0);
    EXPECT(clock_gettime(CLOCK_MONOTONIC, &after) == 0);
    EXPECT(after.tv_sec - before.tv_sec == 86400);
    time_t now = time(NULL);
    EXPECT(gmtime(&now)->tm_year == 100 && gmtime(&now)->tm_mday == 2);
    unsigned char first[16], second[16];
    EXPECT(getentropy(first, 16) == 0 && getentropy(second, 16) == 0);
    EXPECT(memcmp(first, second, 16) != 0);
}

int main(int argc, char **argv) {
    EXPECT(argc == 1 && strcmp(argv[0], "module") == 0);
    files();
    folders();
    time_and_chance();
    void *volatile fits = malloc(3 << 20), *volatile too_large = malloc(200 << 20);
    EXPECT(fits && !too_large && errno == ENOMEM);
    puts("all is well");
    return 0;
}
