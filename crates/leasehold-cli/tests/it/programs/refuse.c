/* refuse FD PROGRAM [ARGUMENT]...: runs a program in which the kernel refuses to watch the
 * descriptor FD with epoll(7), as if the user had reached the limit of watches. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The low word of an argument, on a machine whose words begin with their low byte. */
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Leaves out that many instructions unless the loaded word is this one. */
#define UNLESS(word, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (word), 0, (skipped))

int main(int argc, char **argv)
{
	if (argc < 3)
		return 64;
	struct sock_filter steps[] = {
		LOAD(nr),
		UNLESS(SYS_epoll_ctl, 5),
		LOAD(args[1]),
		UNLESS(EPOLL_CTL_ADD, 3),
		LOAD(args[2]),
		UNLESS((unsigned)atoi(argv[1]), 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		perror("refuse");
		return 69;
	}
	execvp(argv[2], argv + 2);
	perror("refuse");
	return 69;
}
