// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/nslifecycle/nslifecycle/test/framework/faults"
)

// EtcdMembers are the members of one etcd. The control plane starts and stops the first one.
type EtcdMembers struct {
	All []*EtcdMember

	path  string
	flags []string
}

// EtcdMember is a member of an etcd. The other members connect to it through a proxy.
type EtcdMember struct {
	// Client is the host and the port for clients.
	Client string

	name, dir string
	// peer is the host and the port for other members, which use the address of proxy.
	peer  string
	proxy *faults.TCPProxy
	// process is nil for the first member.
	process *Process
	// id is the identity of the member in requests to other members.
	id string
}

// peerIdentity is the header that identifies an etcd member in the requests that it sends to other members.
var peerIdentity = regexp.MustCompile(`X-Server-From: ([0-9a-f]+)\r\n`)

// StartEtcdMembers starts all members except the first one, with data in a directory. They become ready when
// a control plane is started with WithEtcdMembers, and run until Stop is called.
func StartEtcdMembers(ctx context.Context, dir string, count int) (*EtcdMembers, error) {
	assets, err := FindAssets(ctx)
	if err != nil {
		return nil, err
	}
	m := &EtcdMembers{path: filepath.Join(assets, "etcd")}
	var cluster []string
	for i := range count {
		member, err := newEtcdMember(dir, i)
		if err != nil {
			return nil, errors.Join(err, m.Stop())
		}
		m.All = append(m.All, member)
		cluster = append(cluster, member.name+"=http://"+member.proxy.Address())
	}
	m.flags = []string{
		"--initial-cluster=" + strings.Join(cluster, ","), "--unsafe-no-fsync",
		// Without a fault, a busy machine must not cause elections.
		"--heartbeat-interval=200", "--election-timeout=2000",
	}
	for _, member := range m.All[1:] {
		if err := m.start(member); err != nil {
			return nil, errors.Join(err, m.Stop())
		}
	}
	return m, nil
}

func newEtcdMember(dir string, index int) (*EtcdMember, error) {
	m := &EtcdMember{name: fmt.Sprintf("member-%d", index)}
	m.dir = filepath.Join(dir, m.name)
	var err error
	for _, address := range []*string{&m.Client, &m.peer} {
		if *address, err = FreeAddress(); err != nil {
			return nil, err
		}
	}
	if m.proxy, err = faults.StartTCPProxy(m.peer); err != nil {
		return nil, err
	}
	m.proxy.Identify(func(bytes []byte) string {
		if found := peerIdentity.FindSubmatch(bytes); found != nil {
			return string(found[1])
		}
		return ""
	})
	return m, nil
}

// args returns the flags that only this member has.
func (m *EtcdMember) args() map[string]string {
	return map[string]string{
		"name": m.name, "data-dir": m.dir,
		"listen-peer-urls": "http://" + m.peer, "initial-advertise-peer-urls": "http://" + m.proxy.Address(),
		"listen-client-urls": "http://" + m.Client, "advertise-client-urls": "http://" + m.Client,
	}
}

func (m *EtcdMembers) start(member *EtcdMember) error {
	log, err := os.OpenFile(member.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("failed to open the log of an etcd member: %w", err)
	}
	defer log.Close()
	args := slices.Clone(m.flags)
	for name, value := range member.args() {
		args = append(args, "--"+name+"="+value)
	}
	member.process, err = StartProcess(log, m.path, args...)
	return err
}

// WithEtcdMembers uses an etcd with several members. The API server connects to all of them.
func WithEtcdMembers(members *EtcdMembers) Option {
	return func(environment *envtest.Environment) {
		first := members.All[0]
		WithEtcdAddress(first.Client)(environment)
		etcdOf(environment).DataDir = first.dir
		for name, value := range first.args() {
			etcdOf(environment).Configure().Set(name, value)
		}
		for _, flag := range members.flags {
			name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
			if value != "" { // envtest sets the flag without a value.
				etcdOf(environment).Configure().Set(name, value)
			}
		}
		WithAPIServerFlag("etcd-servers", members.URLs())(environment)
	}
}

// URLs returns the addresses of all members for the flag --etcd-servers.
func (m *EtcdMembers) URLs() string {
	var urls []string
	for _, member := range m.All {
		urls = append(urls, member.URL())
	}
	return strings.Join(urls, ",")
}

// URL returns the address for clients.
func (m *EtcdMember) URL() string { return "http://" + m.Client }

// Stop kills all members except the first one.
func (m *EtcdMembers) Stop() error {
	var errs []error
	for _, member := range m.All {
		if member.process != nil {
			errs = append(errs, member.process.Kill())
		}
	}
	for _, member := range m.All {
		errs = append(errs, member.proxy.Stop())
	}
	return errors.Join(errs...)
}

// KillEtcdMember kills a member to simulate a crash.
func (c *ControlPlane) KillEtcdMember(ctx context.Context, member *EtcdMember) error {
	if member.process == nil {
		return c.KillEtcd(ctx)
	}
	return member.process.Kill()
}

// RestartEtcdMembers starts members that were killed. It returns when all members are ready.
func (c *ControlPlane) RestartEtcdMembers(ctx context.Context, members *EtcdMembers, killed ...*EtcdMember) error {
	// The first member becomes ready only if there is a quorum.
	for _, member := range killed {
		if member.process == nil {
			continue
		}
		if err := members.start(member); err != nil {
			return err
		}
	}
	for _, member := range killed {
		if member.process != nil {
			continue
		}
		if err := c.StartEtcd(); err != nil {
			return err
		}
	}
	return members.WaitUntilReady(ctx)
}

// WaitUntilReady waits until all members are part of a quorum. A member that was killed must have been restarted.
func (m *EtcdMembers) WaitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, member := range m.All {
		for {
			status, err := member.status(ctx)
			if err == nil && status.Leader != 0 {
				member.id = strconv.FormatUint(status.Header.MemberID, 16)
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("etcd %s is not ready: %w", member.name, errors.Join(ctx.Err(), err))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// Leader returns the leader, or an error if no member responds or there is no leader.
func (m *EtcdMembers) Leader(ctx context.Context) (*EtcdMember, error) {
	var errs []error
	for _, member := range m.All {
		leader, err := m.LeaderOf(ctx, member)
		if err == nil {
			return leader, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// LeaderOf returns the leader that a member knows.
func (m *EtcdMembers) LeaderOf(ctx context.Context, member *EtcdMember) (*EtcdMember, error) {
	status, err := member.status(ctx)
	if err != nil {
		return nil, err
	}
	for _, other := range m.All {
		if other.id == strconv.FormatUint(status.Leader, 16) {
			return other, nil
		}
	}
	return nil, fmt.Errorf("etcd %s knows no leader", member.name)
}

type etcdStatus struct {
	Leader uint64 `json:",string"`
	Header struct {
		MemberID uint64 `json:"member_id,string"`
	}
}

func (m *EtcdMember) status(ctx context.Context) (status etcdStatus, err error) {
	err = m.post(ctx, "status", "{}", &status)
	return status, err
}

// MoveLeader makes a member the leader. All members must have been ready.
func (m *EtcdMembers) MoveLeader(ctx context.Context, to *EtcdMember) error {
	leader, err := m.Leader(ctx)
	if err != nil || leader == to {
		return err
	}
	id, err := strconv.ParseUint(to.id, 16, 64)
	if err != nil {
		return fmt.Errorf("failed to parse the identity of etcd %s: %w", to.name, err)
	}
	return leader.post(ctx, "transfer-leadership", fmt.Sprintf(`{"targetID":"%d"}`, id), &struct{}{})
}

// post sends a request to the maintenance API of a member.
func (m *EtcdMember) post(ctx context.Context, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := m.URL() + "/v3/maintenance/" + path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("failed to create a request for etcd: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("failed to send %s to etcd %s: %w", path, m.name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("failed to send %s to etcd %s: %s", path, m.name, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("failed to decode the response of etcd %s: %w", m.name, err)
	}
	return nil
}

// SetLatency delays the traffic between one member and the others, in both directions. All members must have been
// ready.
func (m *EtcdMembers) SetLatency(member *EtcdMember, latency time.Duration) {
	m.eachProxy(member, func(proxy *faults.TCPProxy) { proxy.SetLatency(latency) })
}

// Cut closes the connections between one member and the others.
func (m *EtcdMembers) Cut(member *EtcdMember) {
	m.eachProxy(member, (*faults.TCPProxy).Cut)
}

// Isolate discards the traffic between one member and the others until it is called with false.
func (m *EtcdMembers) Isolate(member *EtcdMember, isIsolated bool) {
	m.eachProxy(member, func(proxy *faults.TCPProxy) { proxy.Drop(isIsolated) })
}

// eachProxy calls a function for all proxies that are between one member and the others. In both directions, each
// member sends its messages through connections that the receiver has opened.
func (m *EtcdMembers) eachProxy(member *EtcdMember, do func(*faults.TCPProxy)) {
	for _, other := range m.All {
		other.proxy.LimitTo("")
		if other != member {
			other.proxy.LimitTo(member.id)
		}
		do(other.proxy)
	}
}
