// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults injects faults between the processes of a control plane: TCPProxy into connections, such
// as those between an API server and etcd, and HTTPProxy into requests to an API server, such as those of
// a manager.
package faults
