/* SPDX-License-Identifier: GPL-2.0 */
#ifndef RDS_MR_SOCK_SHIM_H
#define RDS_MR_SOCK_SHIM_H

#include <linux/net.h>

struct file;
struct net;
struct poll_table_struct;
struct sock;

int rds_mr_proto_register(void);
void rds_mr_proto_unregister(void);
int rds_mr_sk_create(struct net *net, struct socket *sock, int kern, void *state);
void *rds_mr_sk_state(const struct socket *sock);
void *rds_mr_sk_release(struct socket *sock);
bool rds_mr_sk_in_init_net(const struct net *net);
struct sock *rds_mr_sk_hold(struct socket *sock);
void rds_mr_sk_put(struct sock *sk);
void rds_mr_sk_wake(struct sock *sk);
void rds_mr_sk_poll_wait(struct file *file, struct socket *sock, struct poll_table_struct *wait);

#endif /* RDS_MR_SOCK_SHIM_H */
