// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	aggregatedService = "bench-aggregated"
	aggregatedPath    = "/apis/aggregated.bench.example.com/v1"
)

var (
	aggregatedType = schema.GroupVersionResource{
		Group: "aggregated.bench.example.com", Version: "v1", Resource: "things",
	}
	apiServiceResource = schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	}
)

// aggregatedServer is an aggregated API server in the process of the harness. It serves one type, which has no
// objects, and no aggregated discovery, so that the API server sends it a discovery request for the group version.
type aggregatedServer struct {
	cluster *cluster
	server  *httptest.Server
	// discoveryDelay is the time until the response to a discovery request.
	discoveryDelay time.Duration

	lock sync.Mutex
	// silent contains the namespaces for which requests get no response until released is closed.
	silent   []string
	released chan struct{}
}

// startAggregated starts an aggregated API server and waits until the API server has discovered its type.
func (c *cluster) startAggregated(ctx context.Context, discoveryDelay time.Duration) (*aggregatedServer, error) {
	s := &aggregatedServer{cluster: c, discoveryDelay: discoveryDelay, released: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+aggregatedPath, s.serveDiscovery)
	mux.HandleFunc("GET "+aggregatedPath+"/things", s.serveObjects)
	mux.HandleFunc(aggregatedPath+"/namespaces/{namespace}/things", s.serveObjects)
	s.server = httptest.NewUnstartedServer(mux)
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // Requests without a response are expected.
	s.server.StartTLS()
	if err := s.register(ctx); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

// register creates the APIService and its Service. The API server resolves the external name of the Service, so the
// Service needs no endpoints.
func (s *aggregatedServer) register(ctx context.Context) error {
	port := s.server.Listener.Addr().(*net.TCPAddr).Port
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: aggregatedService},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Port: int32(port)}},
		},
	}
	services := s.cluster.client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("failed to create the Service of the aggregated API server: %w", err)
	}
	apiService := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiServiceResource.GroupVersion().String(),
		"kind":       "APIService",
		"metadata":   map[string]any{"name": apiServiceName()},
		"spec": map[string]any{
			"group": aggregatedType.Group, "version": aggregatedType.Version, "insecureSkipTLSVerify": true,
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"service": map[string]any{
				"namespace": metav1.NamespaceDefault, "name": aggregatedService, "port": int64(port),
			},
		},
	}}
	_, err := s.cluster.dynamic.Resource(apiServiceResource).Create(ctx, apiService, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create the APIService: %w", err)
	}
	return s.waitUntilDiscovered(ctx, true)
}

func apiServiceName() string { return aggregatedType.Version + "." + aggregatedType.Group }

// waitUntilDiscovered waits until discovery contains, or no longer contains, the type.
func (s *aggregatedServer) waitUntilDiscovered(ctx context.Context, want bool) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, setUpTimeout, true,
		func(context.Context) (bool, error) {
			// Discovery of the group fails until the API server has the first response.
			_, lists, err := s.cluster.client.Discovery().ServerGroupsAndResources()
			isServed := slices.ContainsFunc(lists, func(list *metav1.APIResourceList) bool {
				return list.GroupVersion == aggregatedType.GroupVersion().String() && len(list.APIResources) > 0
			})
			return err == nil && isServed == want, nil
		})
	if err != nil {
		return fmt.Errorf("failed to wait for the discovery of the aggregated API server: %w", err)
	}
	return nil
}

// stop deletes the APIService and its Service, and stops the server.
func (s *aggregatedServer) stop(ctx context.Context) error {
	s.release()
	defer s.server.Close()
	err := s.cluster.dynamic.Resource(apiServiceResource).Delete(ctx, apiServiceName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to delete the APIService: %w", err)
	}
	services := s.cluster.client.CoreV1().Services(metav1.NamespaceDefault)
	err = services.Delete(ctx, aggregatedService, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to delete the Service of the aggregated API server: %w", err)
	}
	return s.waitUntilDiscovered(ctx, false)
}

// hang makes requests for the given namespaces get no response until release is called.
func (s *aggregatedServer) hang(namespaces []string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.silent, s.released = namespaces, make(chan struct{})
}

// release makes all requests get a response.
func (s *aggregatedServer) release() {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.silent != nil {
		close(s.released)
	}
	s.silent = nil
}

func (s *aggregatedServer) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(s.discoveryDelay):
	case <-r.Context().Done():
	}
	writeJSON(w, &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: aggregatedType.GroupVersion().String(),
		APIResources: []metav1.APIResource{{
			Name: aggregatedType.Resource, SingularName: "thing", Kind: "Thing", Namespaced: true,
			Verbs: metav1.Verbs{"delete", "deletecollection", "list"},
		}},
	})
}

// serveObjects responds to requests that list or delete all objects.
func (s *aggregatedServer) serveObjects(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	isSilent, released := slices.Contains(s.silent, r.PathValue("namespace")), s.released
	s.lock.Unlock()
	if isSilent {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}
	if r.Method == http.MethodDelete {
		writeJSON(w, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		})
		return
	}
	writeJSON(w, &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []metav1.PartialObjectMetadata{},
	})
}

func writeJSON(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // The client may have closed the connection.
}
