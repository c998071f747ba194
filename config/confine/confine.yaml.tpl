# Limits what the operator can write. RBAC cannot express most of these rules: for example, a permission to delete Pods
# applies to all namespaces, and this policy limits it to terminating ones. The API server refuses everything that the
# policy does not allow explicitly, so that a permission that is granted by mistake, or added by an upgrade, has no
# effect. Exempt from admission, and limited only by RBAC, are reads, access and token reviews, impersonation, admission
# policies and their bindings, and requests to aggregated API servers.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: confine
  labels:
    nslifecycle.dev/policy: confine
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ["*"]
      apiVersions: ["*"]
      operations: ["*"]
      resources: ["*/*"]
      scope: "*"
  # All requests match, because a role that is too wide would otherwise allow creations and updates of any type. This
  # costs each write of other users less than 0.1 ms (docs/benchmarks.md).
  #
  # For other users, only this comparison is evaluated. The namespace is not compared: an overlay that changes it would
  # otherwise disable the policy. ServiceAccounts with these names in other namespaces are confined too.
  matchConditions:
  - name: is-operator
    expression: >-
      request.userInfo.username.matches(
        '^system:serviceaccount:[^:]*:({{.parts}})$')
  variables:
  # The namespace finalizer of the operator.
  - name: namespaceFinalizer
    expression: "'kubernetes'"
  - name: systemNamespace
    expression: "request.userInfo.username.split(':')[2]"
  - name: isDryRun
    expression: "request.?dryRun.orValue(false)"
  # The resource with its group and subresource. Only /namespaces are Namespaces: custom resources can have this name.
  - name: resource
    expression: >-
      request.resource.group + '/' + request.resource.resource +
      (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)
  - name: isNamespace
    expression: "variables.resource in ['/namespaces', '/namespaces/status', '/namespaces/finalize']"
  - name: isInSystemNamespace
    expression: "!variables.isNamespace && request.namespace == variables.systemNamespace"
  - name: name
    expression: >-
      request.?name.orValue('') != '' ? request.name :
      object != null ? object.?metadata.?name.orValue('') :
      oldObject != null ? oldObject.?metadata.?name.orValue('') : ''
  - name: refusal
    expression: >-
      'user "' + request.userInfo.username + '" is not allowed to ' + request.operation + ' ' +
      request.resource.resource + (request.resource.group == '' ? '' : '.' + request.resource.group) +
      (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource) + ' "' +
      (request.?namespace.orValue('') == '' || variables.isNamespace ? '' : request.namespace + '/') +
      variables.name + '"'
  - name: metadata
    expression: "object == null ? {} : object.?metadata.orValue({})"
  - name: oldMetadata
    expression: "oldObject == null ? {} : oldObject.?metadata.orValue({})"
  # An owner reference to an object that does not exist makes the garbage collector delete the object, and a finalizer
  # blocks its deletion. A NamespaceTemplate owns its revisions.
  - name: keepsOwnersAndFinalizers
    expression: >-
      variables.metadata.?ownerReferences.orValue([])
        .filter(r, !(variables.resource == 'apps/controllerrevisions' && r.kind == 'NamespaceTemplate' &&
          r.apiVersion.startsWith('nslifecycle.dev/'))) ==
      variables.oldMetadata.?ownerReferences.orValue([])
        .filter(r, !(variables.resource == 'apps/controllerrevisions' && r.kind == 'NamespaceTemplate' &&
          r.apiVersion.startsWith('nslifecycle.dev/'))) &&
      variables.metadata.?finalizers.orValue([])
        .filter(f, !(variables.resource == 'nslifecycle.dev/namespacetemplates' && f == 'nslifecycle.dev/template-objects')) ==
      variables.oldMetadata.?finalizers.orValue([])
        .filter(f, !(variables.resource == 'nslifecycle.dev/namespacetemplates' && f == 'nslifecycle.dev/template-objects'))
  - name: keepsLabelsAndAnnotations
    expression: >-
      variables.metadata.?labels.orValue({}) == variables.oldMetadata.?labels.orValue({}) &&
      variables.metadata.?annotations.orValue({}) == variables.oldMetadata.?annotations.orValue({})
  # Whether the namespace of the object is terminating, and its content has to be deleted before the operator removes
  # the namespace finalizer. Users cannot set the time of a deletion.
  - name: isInTerminatingNamespace
    expression: >-
      !variables.isNamespace && namespaceObject != null && has(namespaceObject.metadata.deletionTimestamp) &&
      variables.namespaceFinalizer in namespaceObject.?spec.?finalizers.orValue([])
  - name: isTerminating
    expression: "variables.isNamespace && oldObject != null && has(oldObject.metadata.deletionTimestamp)"

  # The deletion of Namespaces.
  #
  # The pattern for a failure is that of the policy guard, which allows a failure only while initializers are pending.
  - name: hasFailed
    expression: >-
      variables.isNamespace && oldObject != null &&
      variables.oldMetadata.?labels[?'nslifecycle.dev/initializing'].orValue('') == 'true' &&
      {{include "hasNames" "list" "variables.oldMetadata.?annotations[?'nslifecycle.dev/pending-initializers'].orValue('')"}} &&
      variables.oldMetadata.?annotations[?'nslifecycle.dev/initialization-result'].orValue('')
        .matches('{{.failurePattern}}')

  # The updates of Namespaces.
  - name: labels
    expression: "!variables.isNamespace ? {} : variables.metadata.?labels.orValue({})"
  - name: oldLabels
    expression: "!variables.isNamespace ? {} : variables.oldMetadata.?labels.orValue({})"
  - name: annotations
    expression: "!variables.isNamespace ? {} : variables.metadata.?annotations.orValue({})"
  - name: oldAnnotations
    expression: "!variables.isNamespace ? {} : variables.oldMetadata.?annotations.orValue({})"
  - name: ownAnnotations
    expression: >-
      [{{.progressAnnotations}},
       {{.recordAnnotations}}]
  - name: finalizers
    expression: "!variables.isNamespace || object == null ? [] : object.?spec.?finalizers.orValue([])"
  - name: oldFinalizers
    expression: "!variables.isNamespace || oldObject == null ? [] : oldObject.?spec.?finalizers.orValue([])"
  # The conditions that do not belong to the operator. The deletion conditions are those of the built-in namespace
  # controller.
  - name: otherConditions
    expression: >-
      !variables.isNamespace || object == null ? [] : object.?status.?conditions.orValue([])
      .filter(c, !({{include "isOwnCondition"}} ||
        c.type.endsWith('/Initialized') || variables.isTerminating && c.type in [
          'NamespaceDeletionDiscoveryFailure', 'NamespaceDeletionContentFailure',
          'NamespaceDeletionGroupVersionParsingFailure', 'NamespaceContentRemaining', 'NamespaceFinalizersRemaining']))
  - name: oldOtherConditions
    expression: >-
      !variables.isNamespace || oldObject == null ? [] : oldObject.?status.?conditions.orValue([])
      .filter(c, !({{include "isOwnCondition"}} ||
        c.type.endsWith('/Initialized') || variables.isTerminating && c.type in [
          'NamespaceDeletionDiscoveryFailure', 'NamespaceDeletionContentFailure',
          'NamespaceDeletionGroupVersionParsingFailure', 'NamespaceContentRemaining', 'NamespaceFinalizersRemaining']))

  # Diagnosis reports the initialization of namespaces in one condition. It runs together with finalization.
  - name: isFinalization
    expression: "request.userInfo.username.endsWith('finalization')"
  - name: reportsOnlyDiagnosis
    expression: >-
      request.operation == 'UPDATE' && variables.resource == '/namespaces/status' &&
      variables.labels == variables.oldLabels && variables.annotations == variables.oldAnnotations &&
      object.?status.?phase == oldObject.?status.?phase &&
      object.?status.?conditions.orValue([]).filter(c, c.type != 'nslifecycle.dev/InitializationBlocked') ==
      oldObject.?status.?conditions.orValue([]).filter(c, c.type != 'nslifecycle.dev/InitializationBlocked')

  # The managedFields of other clients. The next server-side apply of a client removes the fields that only its entry
  # contains, so an entry that the operator could add or extend would make another client remove labels, for example.
  #
  # The types whose objects other clients apply and the operator updates. For a Namespace, only writes of its
  # subresources are allowed, for which the API server ignores managedFields in requests.
  - name: hasOtherManagers
    expression: >-
      request.operation == 'UPDATE' && variables.resource in ['nslifecycle.dev/namespacetemplates',
        'rbac.authorization.k8s.io/clusterroles', 'admissionregistration.k8s.io/mutatingwebhookconfigurations',
        'admissionregistration.k8s.io/validatingwebhookconfigurations']
  - name: otherManagers
    expression: >-
      !variables.hasOtherManagers ? [] :
      variables.metadata.?managedFields.orValue([]).filter(e, e.?manager.orValue('') != {{.fieldManager}})
  - name: oldManagers
    expression: "!variables.hasOtherManagers ? [] : variables.oldMetadata.?managedFields.orValue([])"

  # The operator keeps the rules of two ClusterRoles up to date.
  #
  # The built-in API groups with their cluster-scoped resources. test/admission compares them with the discovery of
  # each API server.
  - name: builtIn
    expression: >-
      {'': ['namespaces', 'nodes', 'persistentvolumes', 'componentstatuses'],
       'admissionregistration.k8s.io': ['mutatingadmissionpolicies', 'mutatingadmissionpolicybindings',
         'mutatingwebhookconfigurations', 'validatingadmissionpolicies', 'validatingadmissionpolicybindings',
         'validatingwebhookconfigurations'],
       'apiextensions.k8s.io': ['customresourcedefinitions'],
       'apiregistration.k8s.io': ['apiservices'],
       'apps': [],
       'authentication.k8s.io': ['selfsubjectreviews', 'tokenreviews'],
       'authorization.k8s.io': ['selfsubjectaccessreviews', 'selfsubjectrulesreviews', 'subjectaccessreviews'],
       'autoscaling': [],
       'batch': [],
       'certificates.k8s.io': ['certificatesigningrequests', 'clustertrustbundles'],
       'coordination.k8s.io': [],
       'discovery.k8s.io': [],
       'events.k8s.io': [],
       'extensions': [],
       'flowcontrol.apiserver.k8s.io': ['flowschemas', 'prioritylevelconfigurations'],
       'internal.apiserver.k8s.io': ['storageversions'],
       'networking.k8s.io': ['ingressclasses', 'ipaddresses', 'servicecidrs'],
       'node.k8s.io': ['runtimeclasses'],
       'policy': [],
       'rbac.authorization.k8s.io': ['clusterrolebindings', 'clusterroles'],
       'resource.k8s.io': ['deviceclasses', 'devicetaintrules', 'resourceslices'],
       'scheduling.k8s.io': ['priorityclasses'],
       'storage.k8s.io': ['csidrivers', 'csinodes', 'storageclasses', 'volumeattachments', 'volumeattributesclasses'],
       'storagemigration.k8s.io': ['storageversionmigrations']}
  # The prefix of the ServiceAccount's name, which is that of the ClusterRoles' names.
  - name: prefix
    expression: "(request.userInfo.username.split(':')[3] + '$').replace('controller-manager$', '').replace('finalization$', '')"
  - name: roleVerbs
    expression: >-
      {variables.prefix + 'content': ['list', 'watch', 'delete', 'deletecollection'],
       variables.prefix + 'template-objects': ['list', 'watch']}[?request.?name.orValue('')].orValue([])
  - name: roleRules
    expression: >-
      variables.resource == 'rbac.authorization.k8s.io/clusterroles' && object != null ? object.?rules.orValue([]) : []

  # The operator configures the webhooks in three configurations. The API server ensures that their names are unique.
  - name: webhooks
    expression: >-
      request.resource.group == 'admissionregistration.k8s.io' && object != null ? object.?webhooks.orValue([]) : []
  - name: oldWebhooks
    expression: >-
      request.resource.group == 'admissionregistration.k8s.io' && oldObject != null
      ? oldObject.?webhooks.orValue([]) : []
  # The fields of each webhook that the operator changes, apart from clientConfig.
  - name: webhookFields
    expression: >-
      {'inject.nslifecycle.dev': ['rules', 'matchConditions', 'failurePolicy'],
       'complete.nslifecycle.dev': ['rules', 'matchConditions', 'failurePolicy'],
       'restore.nslifecycle.dev': ['rules', 'matchConditions'],
       'restore-locked.nslifecycle.dev': ['rules', 'matchConditions'],
       'restore-conditions.nslifecycle.dev': ['rules', 'matchConditions'],
       'hold.nslifecycle.dev': ['rules'],
       'hold-fallback.nslifecycle.dev': ['rules'],
       'hold-waiting-subjects.nslifecycle.dev': ['rules', 'matchConditions'],
       'hold-fallback-waiting-subjects.nslifecycle.dev': ['rules', 'matchConditions']}

  validations:
  - expression: >-
      variables.isNamespace && request.operation != 'CONNECT' ||
      request.operation == 'DELETE' ||
      request.operation in ['CREATE', 'UPDATE'] && variables.resource in [
        '/events', 'events.k8s.io/events', 'coordination.k8s.io/leases', 'apps/controllerrevisions',
        'internal.nslifecycle.dev/namespaceinitializersets'] ||
      request.operation == 'UPDATE' && variables.resource in [
        '/secrets', 'rbac.authorization.k8s.io/clusterroles', 'nslifecycle.dev/namespacetemplates',
        'admissionregistration.k8s.io/mutatingwebhookconfigurations',
        'admissionregistration.k8s.io/validatingwebhookconfigurations',
        'nslifecycle.dev/namespacetemplates/status', 'nslifecycle.dev/namespaceinitializerconfigurations/status',
        'internal.nslifecycle.dev/namespaceinitializersets/status']
    reason: Forbidden
    messageExpression: "variables.refusal + ': policy confine allows no such request'"
  # The API server checks each object of a deletecollection.
  - expression: >-
      request.operation != 'DELETE' || variables.isNamespace || variables.isInTerminatingNamespace ||
      variables.isInSystemNamespace && variables.resource == 'apps/controllerrevisions' &&
      variables.oldMetadata.?labels[?'nslifecycle.dev/managed-by-template'].hasValue()
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator deletes only objects in terminating namespaces with namespace finalizer "' +
      variables.namespaceFinalizer + '"'
  - expression: "request.operation != 'DELETE' || !variables.isNamespace || variables.hasFailed"
    reason: Forbidden
    messageExpression: "variables.refusal + ': the operator deletes a namespace only if its initialization has failed'"
  - expression: "request.operation != 'CREATE' || !variables.isNamespace || variables.isDryRun"
    reason: Forbidden
    messageExpression: "variables.refusal + ': the operator creates namespaces only as dry runs'"
  # Diagnosis removes the finalizers of other controllers from terminating Namespaces as a dry run.
  # The comparison of whole maps comes first: with 60,000 labels, one expression for each label exceeds the timeout of
  # the request, and the namespace would never be finalized.
  - expression: >-
      request.operation != 'UPDATE' || !variables.isNamespace || variables.isTerminating && variables.isDryRun ||
      variables.keepsOwnersAndFinalizers && (variables.keepsLabelsAndAnnotations ||
      variables.labels.all(k, k == 'nslifecycle.dev/initializing' || variables.labels[?k] == variables.oldLabels[?k]) &&
      variables.oldLabels.all(k, k == 'nslifecycle.dev/initializing' || k in variables.labels) &&
      variables.annotations.all(k, k in variables.ownAnnotations ||
        variables.annotations[?k] == variables.oldAnnotations[?k]) &&
      variables.oldAnnotations.all(k, k in variables.ownAnnotations || k in variables.annotations))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator changes no finalizers, no owner references, and only labels and annotations of'
      + ' its own: nslifecycle.dev/initializing, ' + variables.ownAnnotations.join(', ')
  # The API server ignores spec.finalizers in all other requests.
  - expression: >-
      request.operation != 'UPDATE' || variables.resource != '/namespaces/finalize' ||
      variables.isTerminating && (variables.isDryRun || variables.finalizers == variables.oldFinalizers ||
        variables.finalizers == variables.oldFinalizers.filter(f, f != variables.namespaceFinalizer) ||
        variables.oldFinalizers.size() == 0 && variables.finalizers == [variables.namespaceFinalizer])
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator finalizes only terminating namespaces, and changes only its own namespace'
      + ' finalizer "' + variables.namespaceFinalizer + '"'
  - expression: >-
      request.operation != 'UPDATE' || !variables.isNamespace ||
      variables.otherConditions == variables.oldOtherConditions &&
      (object.?status.?phase == oldObject.?status.?phase ||
       variables.isTerminating && object.?status.?phase.orValue('') == 'Terminating')
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator changes no conditions of other controllers, and sets the phase only to'
      + ' Terminating, and only on terminating namespaces'
  - expression: "!variables.isFinalization || !variables.isNamespace || variables.isTerminating || variables.reportsOnlyDiagnosis"
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': finalization changes nothing of a namespace that is not terminating, except condition'
      + ' nslifecycle.dev/InitializationBlocked'
  # The field manager determines the entry in managedFields that a write extends.
  - expression: >-
      request.operation != 'UPDATE' || !(variables.isNamespace || variables.hasOtherManagers) ||
      variables.isTerminating && variables.isDryRun ||
      variables.resource != '/namespaces' && request.?options.?fieldManager.orValue('') == {{.fieldManager}}
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator writes only as field manager "' + {{.fieldManager}} +
      '", and only the subresources of a Namespace'
  # The API server creates the entry before-first-apply for an object without managedFields, and merges the oldest entries
  # into ancient-changes.
  - expression: >-
      variables.otherManagers.all(e, e in variables.oldManagers ||
        e.manager == 'before-first-apply' && variables.oldManagers.size() == 0 ||
        e.manager == 'ancient-changes' && e.operation == 'Update' && variables.oldManagers.size() >= 10 ||
        variables.oldManagers.exists(o, o.manager == e.manager && o.operation == e.operation &&
          o.?subresource == e.?subresource && o.apiVersion == e.apiVersion &&
          ({{include "isSubset" "fields" "e.fieldsV1" "of" "o.fieldsV1"}})))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator does not add or extend entries of other field managers in managedFields'
  # Events about cluster-scoped objects are in the namespace default.
  - expression: >-
      !(request.operation in ['CREATE', 'UPDATE'] && variables.resource in ['/events', 'events.k8s.io/events']) ||
      variables.keepsOwnersAndFinalizers && (variables.isInSystemNamespace || request.namespace == 'default' &&
      [object, oldObject].all(o, o == null || [o.?regarding, o.?involvedObject].all(r,
        !r.hasValue() || r.value().?apiVersion.orValue('') + '/' + r.value().?kind.orValue('') in [
          'v1/Namespace', 'nslifecycle.dev/v1alpha1/NamespaceTemplate',
          'nslifecycle.dev/v1alpha1/NamespaceInitializerConfiguration'])))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator records only Events about namespaces, NamespaceTemplates and'
      + ' NamespaceInitializerConfigurations'
  # A Lease counts as held for the duration that its last holder has written: without a limit, a stolen token could stop
  # a part of the operator for decades.
  - expression: >-
      !(request.operation in ['CREATE', 'UPDATE'] &&
        variables.resource in ['coordination.k8s.io/leases', 'apps/controllerrevisions']) ||
      variables.isInSystemNamespace && variables.keepsOwnersAndFinalizers &&
      (variables.resource == 'coordination.k8s.io/leases'
       ? object.?spec.?leaseDurationSeconds.orValue(0) <= 60
       : variables.metadata.?labels[?'nslifecycle.dev/managed-by-template'].hasValue() &&
       (oldObject == null || variables.oldMetadata.?labels[?'nslifecycle.dev/managed-by-template'].hasValue()))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator writes only its Leases, for at most 60 s, and the revisions of NamespaceTemplates, in namespace "' +
      variables.systemNamespace + '"'
  - expression: >-
      request.operation != 'UPDATE' || variables.resource != '/secrets' ||
      variables.isInSystemNamespace && request.name == 'nslifecycle-webhook-certificate' &&
      variables.keepsOwnersAndFinalizers && variables.keepsLabelsAndAnnotations &&
      object.?type == oldObject.?type && object.?immutable == oldObject.?immutable
    reason: Forbidden
    messageExpression: "variables.refusal + ': the operator changes only the data of its webhook certificate'"
  - expression: >-
      !(request.operation in ['CREATE', 'UPDATE'] && request.resource.group.endsWith('nslifecycle.dev')) ||
      variables.keepsOwnersAndFinalizers &&
      (request.resource.group == 'nslifecycle.dev' || variables.name == 'effective') &&
      (variables.resource != 'nslifecycle.dev/namespacetemplates' || variables.keepsLabelsAndAnnotations &&
       object.?spec == oldObject.?spec)
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator changes only the status of objects in nslifecycle.dev, finalizer'
      + ' nslifecycle.dev/template-objects of NamespaceTemplates, and NamespaceInitializerSet "effective"'
  # A label could add the rules to another ClusterRole, such as admin.
  - expression: >-
      request.operation != 'UPDATE' || variables.resource != 'rbac.authorization.k8s.io/clusterroles' ||
      variables.roleVerbs.size() > 0 && !has(object.aggregationRule) &&
      variables.keepsOwnersAndFinalizers && variables.keepsLabelsAndAnnotations
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator changes only the rules of ClusterRoles ' + variables.prefix + 'content and '
      + variables.prefix + 'template-objects'
  - expression: >-
      variables.roleRules.size() <= 1000 && variables.roleRules.map(r, r.?resources.orValue([]).size()).sum() <= 10000 &&
      variables.roleRules.all(r,
        r.?nonResourceURLs.orValue([]).size() + r.?resourceNames.orValue([]).size() == 0 &&
        r.verbs.all(v, v in variables.roleVerbs) &&
        r.?apiGroups.orValue([]).all(g, g != '*' && g != 'admissionregistration.k8s.io') &&
        r.?resources.orValue([]).all(p, p != '*' && !p.contains('/')))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': a rule can contain only verbs ' + variables.roleVerbs.join(', ') + ', no wildcards, no'
      + ' subresources, no resourceNames and no nonResourceURLs; at most 1000 rules with 10000 resources'
  - expression: >-
      variables.roleRules.all(r, r.?apiGroups.orValue([]).all(g, !(g in variables.builtIn) ||
        !('deletecollection' in r.verbs) && r.?resources.orValue([]).all(p, !(p in variables.builtIn[g]))))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': for a built-in API group, a rule can contain no cluster-scoped resource and not the verb'
      + ' deletecollection'
  - expression: >-
      request.operation != 'UPDATE' || request.resource.group != 'admissionregistration.k8s.io' ||
      (request.resource.resource == 'mutatingwebhookconfigurations' && request.name in
         ['nslifecycle-inject', 'nslifecycle-hold'] ||
       request.resource.resource == 'validatingwebhookconfigurations' && request.name == 'nslifecycle-templates') &&
      variables.keepsOwnersAndFinalizers && variables.keepsLabelsAndAnnotations &&
      variables.webhooks.map(w, w.name) == variables.oldWebhooks.map(w, w.name) &&
      variables.webhooks.all(w, variables.oldWebhooks.filter(o, o.name == w.name).all(o,
        w.all(k, k == 'clientConfig' || k in variables.webhookFields[?w.name].orValue([]) || w[?k] == o[?k]) &&
        o.all(k, k in w || k in variables.webhookFields[?w.name].orValue([]))))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator changes only its own webhooks, and of them only clientConfig and, of some,'
      + ' rules, matchConditions and failurePolicy'
  # An administrator can give the webhooks a URL, for a manager outside the cluster, and the operator then changes it.
  - expression: >-
      variables.webhooks.all(w, variables.oldWebhooks.filter(o, o.name == w.name).all(o,
        w.clientConfig.all(k, k == 'caBundle' || k in o.clientConfig) &&
        w.clientConfig.?service.orValue({}).all(k,
          k == 'path' && request.name == 'nslifecycle-inject' ||
          w.clientConfig.service[?k] == o.clientConfig.service[?k])))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the operator does not replace the Service of a webhook with another or with a URL, and changes'
      + ' only the path in nslifecycle-inject'
  # The namespaceSelector of the webhooks that hold writes, which cannot be changed, selects initializing namespaces.
  - expression: >-
      variables.webhooks.all(w, variables.oldWebhooks.exists(o, o.name == w.name && o.?rules == w.?rules) ||
        w.?rules.orValue([]).all(r, request.name == 'nslifecycle-inject'
          ? r.apiGroups == [''] && r.apiVersions == ['v1'] && r.operations.all(o, o in ['CREATE', 'UPDATE']) &&
            r.resources.all(p, p in ['namespaces', 'namespaces/status', 'namespaces/finalize'])
          : r.operations.all(o, o in ['CREATE', 'UPDATE', 'DELETE']) && r.resources == ['*'] &&
            r.?scope.orValue('') == 'Namespaced'))
    reason: Forbidden
    messageExpression: >-
      variables.refusal + ': the rules in nslifecycle-inject select only creations and updates of namespaces, and those'
      + ' in nslifecycle-hold only creations, updates and deletions of namespaced objects'
  # An administrator can add match conditions.
  - expression: >-
      request.name != 'nslifecycle-inject' ||
      variables.webhooks.all(w, variables.oldWebhooks.filter(o, o.name == w.name).all(o,
        o.?matchConditions.orValue([]).all(c, c in w.?matchConditions.orValue([]) || c.name in
          ['something-to-do', 'something-left-out-or-emptied', 'is-initializer', 'is-no-initializer'])))
    reason: Forbidden
    messageExpression: "variables.refusal + ': the operator removes only its own match conditions'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: confine
  labels:
    nslifecycle.dev/policy: confine
spec:
  policyName: confine
  validationActions: ["Deny"]
