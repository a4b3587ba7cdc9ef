// SPDX-License-Identifier: GPL-2.0
/*
 * The C half of a socket: struct sock, followed by one pointer to the state
 * that Rust owns. Only here is the layout of struct sock known.
 */
#include <linux/module.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "sock_shim.h"

struct rds_mr_sock {
	struct sock sk;
	void *state;
};

static struct proto rds_mr_proto = {
	/* Not "RDS": slab and /proc/net/protocols names must not collide. */
	.name = "RDS_MR",
	.owner = THIS_MODULE,
	.obj_size = sizeof(struct rds_mr_sock),
};

int rds_mr_proto_register(void)
{
	return proto_register(&rds_mr_proto, 0);
}

void rds_mr_proto_unregister(void)
{
	proto_unregister(&rds_mr_proto);
}

/*
 * Attach a new struct sock that carries @state. sk_alloc takes the module
 * reference that keeps this code loaded while the socket lives.
 */
int rds_mr_sk_create(struct net *net, struct socket *sock, int kern, void *state)
{
	struct sock *sk = sk_alloc(net, PF_RDS, GFP_KERNEL, &rds_mr_proto, kern);

	if (!sk)
		return -ENOMEM;
	sock_init_data(sock, sk);
	((struct rds_mr_sock *)sk)->state = state;
	return 0;
}

/* Valid between create and release, i.e. in every call on an open socket. */
void *rds_mr_sk_state(const struct socket *sock)
{
	return ((struct rds_mr_sock *)sock->sk)->state;
}

/* Detach the struct sock and give its state back; NULL if it never had one. */
void *rds_mr_sk_release(struct socket *sock)
{
	struct sock *sk = sock->sk;
	void *state;

	if (!sk)
		return NULL;
	state = ((struct rds_mr_sock *)sk)->state;
	((struct rds_mr_sock *)sk)->state = NULL;
	sock_orphan(sk);
	sock->sk = NULL;
	sock_put(sk);
	return state;
}

bool rds_mr_sk_in_init_net(const struct net *net)
{
	return net_eq(net, &init_net);
}

struct sock *rds_mr_sk_hold(struct socket *sock)
{
	sock_hold(sock->sk);
	return sock->sk;
}

void rds_mr_sk_put(struct sock *sk)
{
	sock_put(sk);
}

/* Wake who polls for an exceptional condition; nobody does once @sk is orphaned. */
void rds_mr_sk_wake(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, EPOLLPRI);
	rcu_read_unlock();
}

void rds_mr_sk_poll_wait(struct file *file, struct socket *sock, struct poll_table_struct *wait)
{
	sock_poll_wait(file, sock, wait);
}
