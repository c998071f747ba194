// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// deletedDir contains one file per UID of a deleted index.
	deletedDir = ".deleted"
	// scratchPrefix is the name prefix of incomplete files.
	scratchPrefix = ".scratch-"
	// deletionRetention is how long the server keeps the record of a deletion. It is longer than a
	// request can be delayed.
	deletionRetention = 24 * time.Hour
	// maxHits limits the number of documents in a response.
	maxHits = 100
)

// Errors that the methods of Store wrap with details.
var (
	// ErrInvalid is returned if a name, UID or ID is invalid.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound is returned if the index does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned if the index belongs to another Namespace.
	ErrConflict = errors.New("conflict")
	// ErrDeleted is returned if the index of this Namespace was deleted.
	ErrDeleted = errors.New("deleted")
)

// Store keeps indices in a directory and in memory. It is safe for concurrent use within one
// process.
type Store struct {
	dir string
	now func() time.Time

	mutex   sync.RWMutex
	indices map[string]*index
	// deleted maps the UIDs of deleted indices to the times of their deletion.
	deleted map[string]time.Time
}

// index is the content of the file of an index.
type index struct {
	// Record has no number of documents.
	Record    Index               `json:"record"`
	Documents map[string]Document `json:"documents"`
}

// Open reads the indices in a directory, and creates the directory if it does not exist.
func Open(dir string) (*Store, error) {
	return open(dir, time.Now)
}

func open(dir string, now func() time.Time) (*Store, error) {
	store := &Store{dir: dir, now: now, indices: map[string]*index{}, deleted: map[string]time.Time{}}
	if err := os.MkdirAll(filepath.Join(dir, deletedDir), 0o700); err != nil {
		return nil, fmt.Errorf("failed to create the directory of the indices: %w", err)
	}
	if err := errors.Join(store.readDeleted(), store.readIndices()); err != nil {
		return nil, fmt.Errorf("failed to read the indices in %s: %w", dir, err)
	}
	return store, nil
}

// Create creates an index, or returns the existing one.
func (s *Store) Create(name string, owner Owner) (created Index, isNew bool, err error) {
	err = errors.Join(checkName("index", name), checkUID(owner.UID), checkName("namespace", owner.Namespace))
	if err != nil {
		return Index{}, false, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if when, ok := s.deleted[owner.UID]; ok {
		return Index{}, false, fmt.Errorf("%w: the index of namespace %q with UID %s was deleted at %s",
			ErrDeleted, owner.Namespace, owner.UID, when.Format(time.RFC3339))
	}
	if found, ok := s.indices[name]; ok {
		if found.Record.Owner != owner {
			return Index{}, false, conflictError(found)
		}
		return found.describe(), false, nil
	}
	made := &index{Record: Index{Name: name, Owner: owner, Created: s.now().UTC()}, Documents: map[string]Document{}}
	if err := writeJSON(s.path(name), made); err != nil {
		return Index{}, false, err
	}
	s.indices[name] = made
	return made.describe(), true, nil
}

// Get returns an index.
func (s *Store) Get(name string) (Index, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found, err := s.find(name)
	if err != nil {
		return Index{}, err
	}
	return found.describe(), nil
}

// List returns all indices, sorted by name.
func (s *Store) List() []Index {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	list := make([]Index, 0, len(s.indices))
	for _, name := range slices.Sorted(maps.Keys(s.indices)) {
		list = append(list, s.indices[name].describe())
	}
	return list
}

// Delete deletes the index of a Namespace. Until deletionRetention has passed, no index can be
// created for this UID.
func (s *Store) Delete(name, uid string) error {
	if err := errors.Join(checkName("index", name), checkUID(uid)); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found, exists := s.indices[name]
	if exists && found.Record.Owner.UID != uid {
		return conflictError(found)
	}
	if err := s.remember(uid); err != nil {
		return err
	}
	if !exists {
		return nil
	}
	if err := remove(s.path(name)); err != nil {
		return err
	}
	delete(s.indices, name)
	return nil
}

// Add adds a document to an index. It returns the ID of the document, and whether the document is
// new.
func (s *Store) Add(name string, document Document) (id string, isNew bool, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found, err := s.find(name)
	if err != nil {
		return "", false, err
	}
	if document.ID == "" {
		document.ID = found.unusedID()
	} else if err := checkName("document", document.ID); err != nil {
		return "", false, err
	}
	before, exists := found.Documents[document.ID]
	if document.Time.IsZero() {
		document.Time = s.now()
	}
	document.Time = document.Time.UTC()
	if exists && reflect.DeepEqual(before, document) {
		return document.ID, false, nil
	}
	changed := &index{Record: found.Record, Documents: maps.Clone(found.Documents)}
	changed.Documents[document.ID] = document
	if err := writeJSON(s.path(name), changed); err != nil {
		return "", false, err
	}
	s.indices[name] = changed
	return document.ID, !exists, nil
}

// Search returns the latest documents of an index that contain every word of the query. An empty query matches all
// documents.
func (s *Store) Search(name, query string) (Found, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found, err := s.find(name)
	if err != nil {
		return Found{}, err
	}
	documents := []Document{}
	words := wordsOf(query)
	for _, document := range found.Documents {
		if sets.New(wordsIn(document)...).HasAll(words...) {
			documents = append(documents, document)
		}
	}
	slices.SortFunc(documents, func(a, b Document) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID))
	})
	return Found{Total: len(documents), Documents: documents[:min(maxHits, len(documents))]}, nil
}

func (s *Store) find(name string) (*index, error) {
	if found, exists := s.indices[name]; exists {
		return found, nil
	}
	return nil, fmt.Errorf("%w: index %q does not exist", ErrNotFound, name)
}

// remember records the UID of a deleted index, and drops expired records.
func (s *Store) remember(uid string) error {
	now := s.now().UTC()
	for old, when := range s.deleted {
		if now.Sub(when) > deletionRetention {
			if err := remove(s.deletedPath(old)); err != nil {
				return err
			}
			delete(s.deleted, old)
		}
	}
	if _, ok := s.deleted[uid]; ok {
		return nil
	}
	if err := writeJSON(s.deletedPath(uid), now); err != nil {
		return err
	}
	s.deleted[uid] = now
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name+".json") }

func (s *Store) deletedPath(uid string) string { return filepath.Join(s.dir, deletedDir, uid+".json") }

func (i *index) describe() Index {
	described := i.Record
	described.Documents = len(i.Documents)
	return described
}

// unusedID returns the next free number. Documents are never removed from an index.
func (i *index) unusedID() string {
	for n := len(i.Documents) + 1; ; n++ {
		id := fmt.Sprintf("%08d", n)
		if _, ok := i.Documents[id]; !ok {
			return id
		}
	}
}

func conflictError(found *index) error {
	return fmt.Errorf("%w: index %q belongs to namespace %q with UID %s",
		ErrConflict, found.Record.Name, found.Record.Owner.Namespace, found.Record.Owner.UID)
}

func checkName(what, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%w: %q is not a valid %s name: use at most 127 lowercase letters, digits and dashes, "+
			"without a dash at the beginning or end", ErrInvalid, name, what)
	}
	return nil
}

func checkUID(uid string) error {
	if !uidPattern.MatchString(uid) {
		return fmt.Errorf("%w: %q is not a valid UID", ErrInvalid, uid)
	}
	return nil
}
